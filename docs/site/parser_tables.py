"""Tables of the parsers, made from the parsers and two files of replies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ood_lab.lvlm.parsers import PARSERS, YES_NO_PARSERS
from tests.benchmarks.reply_styles import own_parser, reads_right, styled_replies

_REPLIES = Path(__file__).parents[2] / "tests" / "lvlm" / "parsers" / "parser_replies.jsonl"
#: What they answer, where a rule reads the question.
_QUESTION = "Is there a dog in the image? A. Yes B. No"
_READER = (
    "| `reader` | ours | what the language model of `reader=...` says that the answer means; of "
    "counts and choices, too | unparsed: it says unclear |"
)


def style_table() -> str:
    """In Markdown: by style and rule, the share of replies in % that are read as a person does.

    Counts and choices have one rule, which is ours; it is in the column of ``default``.
    """
    rows = styled_replies()
    lines = [["style", "replies", *(f"`{name}`" for name in YES_NO_PARSERS)]]
    lines.append(["---"] * len(lines[0]))
    styles = list(dict.fromkeys((row["kind"], row["style"]) for row in rows))
    for kind, style in [*styles, ("yes or no", ""), ("", "")]:
        part = [row for row in rows if style in ("", row["style"]) and kind in ("", row["kind"])]
        names = YES_NO_PARSERS if kind == "yes or no" else ("default",)
        shown = [
            sum(reads_right(own_parser(r["kind"]) if n == "default" else n, r) for r in part)
            for n in names
        ]
        cells = [f"{100 * right / len(part):.0f}" for right in shown]
        title = f"{kind}: {style}" if style else f"**all {kind}**".replace(" *", "*")
        lines.append([title, str(len(part)), *cells, *[""] * (len(YES_NO_PARSERS) - len(cells))])
    return "\n".join(f"| {' | '.join(line)} |".replace("|  ", "| ") for line in lines)


def parser_table() -> str:
    """In Markdown: whose rule every parser has, and what the rule is."""
    head = "| `task.parser` | whose rule | yes or no is | otherwise |\n|---|---|---|---|\n"
    found = (PARSERS[name] for name in YES_NO_PARSERS)
    rows = [f"| `{p.name}` | {p.source} | {p.says} | {p.otherwise} |" for p in found]
    return head + "\n".join([*rows, _READER])


def difference_table() -> str:
    """In Markdown: of the replies, the share in % that two parsers read differently.

    The last row compares them with what a person reads.
    """
    rows = [json.loads(line) for line in _REPLIES.read_text(encoding="utf-8").splitlines()]
    said = {
        name: [PARSERS[name](row["reply"], _QUESTION) for row in rows] for name in YES_NO_PARSERS
    }
    said["a person"] = [row["means"] for row in rows]
    columns = list(YES_NO_PARSERS)
    lines = [["%", *(f"`{name}`" for name in columns)], ["---"] * (len(columns) + 1)]
    for place, name in list(enumerate(said))[1:]:
        shares = [_share(said[name], said[other]) for other in columns[:place]]
        shown = f"`{name}`" if name in columns else name
        lines.append([shown, *shares, *[""] * (len(columns) - place)])
    return "\n".join(f"| {' | '.join(line)} |".replace("|  ", "| ") for line in lines)


def _share(a: Sequence[str | None], b: Sequence[str | None]) -> str:
    return f"{100 * sum(x != y for x, y in zip(a, b, strict=True)) / len(a):.0f}"
