"""Notebooks of ``examples/`` as pages, with the outputs that are stored in them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"
#: MIME types of an output, the richest first, and how each is written in Markdown.
_SHOWN = {
    "image/png": "![](data:image/png;base64,{})",
    "text/html": "{}",
    "text/markdown": "{}",
    "text/plain": "```text\n{}\n```",
}


def pages() -> dict[str, str]:
    """Markdown of every notebook, by its path on the site."""
    return {
        f"tutorials/notebooks/{book.stem}.md": _page(book)
        for book in sorted(EXAMPLES.glob("*.ipynb"))
    }


def _page(book: Path) -> str:
    cells = json.loads(book.read_text(encoding="utf-8"))["cells"]
    parts = [part for cell in cells for part in _cell(cell)]
    return "\n\n".join([*parts, f"The notebook: `examples/{book.name}`."]) + "\n"


def _cell(cell: dict[str, Any]) -> list[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] != "code":
        return [source]
    return [f"```python\n{source}\n```", *(_output(one) for one in cell["outputs"])]


def _output(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text']).rstrip()}\n```"
    data = output.get("data", {})
    kind = next((kind for kind in _SHOWN if kind in data), None)
    text = "".join(data[kind]).rstrip() if kind else ""
    if kind == "text/html":  # a table of pandas looks like the other tables of the site
        text = re.sub(r"<style.*?</style>\n?", "", text, flags=re.DOTALL)
        text = text.replace('<table border="1" class="dataframe">', "<table>")
    return _SHOWN[kind].format(text) if kind else ""
