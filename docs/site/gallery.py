"""The gallery: pictures that runs made, each with its caption and its command."""

from __future__ import annotations

from pathlib import Path

import yaml

_FILE = Path(__file__).with_name("gallery.yaml")


def page() -> str:
    """Markdown of the page."""
    content = yaml.load(_FILE.read_text(encoding="utf-8"), yaml.CSafeLoader)
    text = f"# Gallery\n\n{content['intro']}\n"
    for section in content["sections"]:
        text += f"\n## {section['title']}\n"
        for one in section["pictures"]:
            caption, file = one["caption"], f"assets/pictures/{one['picture']}.webp"
            text += f"\n![]({file})\n\n{caption}\n\n"
            text += f"```bash\n{one['command']}\n```\n"
    return text


def pictures() -> list[dict[str, str]]:
    """``picture, caption, command`` of all."""
    content = yaml.load(_FILE.read_text(encoding="utf-8"), yaml.CSafeLoader)
    return [one for section in content["sections"] for one in section["pictures"]]
