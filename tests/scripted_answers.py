"""What a finished run says first, read from its page and from what it shows again."""

import html
import json
import re
from pathlib import Path


def answer_of(folder: Path, page: str) -> list[str]:
    """The sentences on top of the page, which are those that the terminal prints first."""
    text = (folder / f"{page}.html").read_text()
    assert '<dl class="facts">' not in text
    found = [html.unescape(line) for line in re.findall('<p class="answer">(.*?)</p>', text)]
    (shown,) = json.loads((folder / "summary.json").read_text()).values()
    assert [block["text"] for block in shown[: len(found)]] == found
    assert [block for block in shown if block.get("style") == "answer"] == shown[: len(found)]
    assert text.index('class="answer"') < text.index("<table")
    return found
