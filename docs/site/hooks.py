"""Pages and tables of the site that are made when it is built, and how docstrings are shown."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))
import command_line
import configuration
import detector_pages
import gallery
import notebooks
import reference_tables

if TYPE_CHECKING:  # tests look at the pages without mkdocs
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parents[2]


@cache
def tables() -> dict[str, str]:
    """Markdown of every table that a page may name."""
    return reference_tables.tables()


@cache
def pages() -> dict[str, str]:
    """Markdown of every page that is made, by its path."""
    groups = {f"configuration/{name}.md": text for name, text in configuration.pages().items()}
    detectors = detector_pages.pages().items()
    copies = {
        page.lower(): (ROOT / page)
        .read_text(encoding="utf-8")
        .replace("](docs/", "](")
        .replace("](CONTRIBUTING", "](contributing")
        for page in ("CHANGELOG.md", "CONTRIBUTING.md")
    }
    return {
        **groups,
        **{f"reference/detectors/{key}.md": text for key, text in detectors},
        **reference_tables.pages(tables()),
        **notebooks.pages(),
        **copies,
        "gallery.md": gallery.page(),
        "reference/command-line.md": command_line.page(),
    }


def below(folder: str) -> list[str]:
    """Pages that are made in a folder, its index first."""
    found = [path for path in pages() if path.startswith(f"{folder}/")]
    return sorted(found, key=lambda path: (not path.endswith("/index.md"), path))


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fills an entry ``NAME: [FOLDER/]`` of the navigation with the pages that are made there."""

    def filled(entry: Any) -> Any:
        if isinstance(entry, dict):
            return {key: filled(one) for key, one in entry.items()}
        if isinstance(entry, list):
            return [
                page
                for one in entry
                for page in (
                    below(one.rstrip("/"))
                    if isinstance(one, str) and one.endswith("/")
                    else [filled(one)]
                )
            ]
        return entry

    config.nav = filled(config.nav)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are made."""
    from mkdocs.structure.files import File

    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Puts the tables into the pages that name them."""
    return reference_tables.filled(markdown, tables())


def on_page_content(html: str, **_: Any) -> str:
    """``:class:`Name``` of a docstring is a name."""
    return re.sub(r":(?:class|func|meth|mod|attr|data):(?=<code>)", "", html)
