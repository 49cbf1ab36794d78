"""What all pages are made with: templates, figures inside a page, and the file itself."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from ood_lab.io import write_text


class FigureFile(NamedTuple):
    """One figure on disk, with the words that go with it."""

    png: Path
    svg: Path
    title: str
    caption: str


def save_page(path: Path, text: str) -> Path:
    """Writes a page as a whole or not at all."""
    write_text(text, path)
    return path


def page_template(name: str = "template.html.j2") -> Any:
    """The page of a report, to be rendered with all of its variables."""
    environment = Environment(
        loader=PackageLoader("ood_lab.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def embed(figure: FigureFile, folder: Path) -> dict[str, Any]:
    """A figure inside a page of ``folder``, with links to its files."""
    data = base64.b64encode(figure.svg.read_bytes()).decode()
    return {
        "title": figure.title,
        "caption": figure.caption,
        "uri": f"data:image/svg+xml;base64,{data}",
        "files": [
            (kind, Path(os.path.relpath(file, folder)).as_posix())
            for kind, file in (("PNG", figure.png), ("SVG", figure.svg))
        ],
    }
