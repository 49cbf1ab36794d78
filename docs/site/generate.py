"""Writes the references of docs/ that are made of code, configuration and published numbers.

``python docs/site/generate.py`` writes whole pages, and the tables of written pages between
``<!-- table: NAME -->`` and ``<!-- end of table -->``. A test holds all of them fresh.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
import configuration
import detector_pages
import gallery
import reference_tables

DOCS = Path(__file__).parents[1]
#: Second line of a page of which nothing is written by hand.
MARK = "<!-- Written by: python docs/site/generate.py -->\n"
_TABLE = re.compile(r"^<!-- table: (.+?) -->\n.*?^<!-- end of table -->$", re.M | re.S)


@cache
def tables() -> dict[str, str]:
    """Markdown of every table, by its name."""
    return reference_tables.tables()


@cache
def pages() -> dict[str, str]:
    """Markdown of every page of references, by its path in docs/."""
    detectors = detector_pages.pages().items()
    made = {
        **{f"configuration/{name}.md": text for name, text in configuration.pages().items()},
        **{f"reference/detectors/{key}.md": text for key, text in detectors},
        **reference_tables.pages(tables()),
        "gallery.md": gallery.page(),
    }
    return {path: text.replace("\n", f"\n{MARK}", 1) for path, text in made.items()}


def is_generated(page: Path) -> bool:
    """Whether nothing of a page is written by hand."""
    return MARK in page.read_text(encoding="utf-8")


def filled(markdown: str) -> str:
    """A page with the tables that it names.

    Raises:
        KeyError: there is no such table.
    """
    return _TABLE.sub(
        lambda m: f"<!-- table: {m[1]} -->\n\n{tables()[m[1]]}\n\n<!-- end of table -->", markdown
    )


def stale() -> list[Path]:
    """Pages whose text is not what would be written now, and those to be removed."""
    found = [DOCS / path for path in pages() if not _equals(DOCS / path, pages()[path])]
    for page in DOCS.rglob("*.md"):
        if is_generated(page):
            found += [] if page.relative_to(DOCS).as_posix() in pages() else [page]
        elif not _equals(page, filled(page.read_text(encoding="utf-8"))):
            found.append(page)
    return sorted(found)


def _equals(page: Path, text: str) -> bool:
    return page.is_file() and page.read_text(encoding="utf-8") == text


def main() -> None:
    """Writes what is stale."""
    for page in stale():
        path = page.relative_to(DOCS).as_posix()
        print(page.relative_to(DOCS.parent))
        if path in pages():
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(pages()[path], encoding="utf-8")
        elif is_generated(page):
            page.unlink()
        else:
            page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
