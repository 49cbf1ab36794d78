"""What a made data set is, in the form of a short datasheet (arXiv:1803.09010)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def datasheet(title: str, sections: Mapping[str, Mapping[str, Any] | str]) -> str:
    """Markdown with a heading a section; facts become a list ``- **name**: value``."""
    lines = [f"# {title}"]
    for heading, content in sections.items():
        lines += ["", f"## {heading}", ""]
        if isinstance(content, str):
            lines.append(content)
        else:
            lines += [f"- **{name}**: {value}" for name, value in content.items()]
    return "\n".join(lines) + "\n"
