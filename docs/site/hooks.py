"""Pages of the site that are made when it is built, and what docstrings need to read well."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
import reference

ROOT = Path(__file__).parents[2]
_PAGES = reference.pages()
_SECTION = "Configuration"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Puts the groups under the heading of the navigation that awaits them."""
    groups = [f"configuration/{name}.md" for name in ("index", *sorted(_PAGES.keys() - {"index"}))]

    def filled(entry: Any) -> Any:
        if isinstance(entry, list):
            return [filled(one) for one in entry]
        if isinstance(entry, dict):
            return {key: groups if key == _SECTION else filled(one) for key, one in entry.items()}
        return entry

    config.nav = filled(config.nav)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the reference of the configuration, and the two pages that lie beside the README."""
    for name, text in _PAGES.items():
        files.append(File.generated(config, f"configuration/{name}.md", content=text))
    for page in ("CHANGELOG.md", "CONTRIBUTING.md"):
        text = (ROOT / page).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, page.lower(), content=text))
    return files


def on_page_content(html: str, **_: Any) -> str:
    """``:class:`Name``` of a docstring is a name."""
    return re.sub(r":(?:class|func|meth|mod|attr|data):(?=<code>)", "", html)
