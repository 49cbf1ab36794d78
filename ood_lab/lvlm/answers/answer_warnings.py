"""What to know of the answers of a run before a number is believed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pandas as pd

from ood_lab.lvlm.answers.answer_files import Answer
from ood_lab.lvlm.answers.asking_facts import failures
from ood_lab.lvlm.answers.judgements import FAILED, UNPARSED
from ood_lab.lvlm.answers.reply_text import is_cut
from ood_lab.lvlm.parsers.base import is_foreign

#: Above this share of unparsed replies a run recommends ``reader=...``.
_MANY_UNREAD = 0.05


def answer_warnings(found: Sequence[Answer]) -> Iterator[str]:
    """Failed requests and cut replies."""
    if failed := sum(answer.error is not None for answer in found):
        yield (
            f"{failed:,} of {len(found):,} questions have no answer, and the numbers skip "
            f"them: {failures(found)}"
        )
    if cut := sum(answer.error is None and is_cut(answer.finish_reason) for answer in found):
        yield (
            f"{cut:,} of {len(found):,} replies were cut at their longest length: an answer that "
            "is missing there is unparsed, and a caption read as far as it goes; give more room "
            "(lvlm.max_tokens of a server, lvlm.max_new_tokens of a local model)"
        )


def unread_warnings(judged: Iterable[pd.DataFrame]) -> Iterator[str]:
    """What to do where many replies could not be read by a parser.

    Args:
        judged: tables of single answers, see :func:`~ood_lab.lvlm.answers.judgements.judge`.
    """
    rows = pd.concat([table[["status", "reply"]] for table in judged if "status" in table])
    unread = rows["status"] == UNPARSED
    lost, said = int(unread.sum()), int((rows["status"] != FAILED).sum())
    foreign = sum(map(is_foreign, rows.loc[unread, "reply"]))
    if lost > _MANY_UNREAD * said:
        script = f" ({foreign:,} are in a script that no parser reads)" if foreign else ""
        yield (
            f"{lost:,} of {said:,} replies ({lost / said:.0%}) say nothing that the parser can "
            f"read{script}: have a language model read them with task.parser=reader reader=openai "
            "reader.model=NAME"
        )
