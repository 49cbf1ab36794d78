"""What the answers of a run took, and which kinds of failures there are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from ood_lab.common.grouping import grouped
from ood_lab.lvlm.answers.answer_files import Answer, Answers
from ood_lab.lvlm.answers.judgements import FAILED, UNPARSED
from ood_lab.lvlm.chat.base import CostOf
from ood_lab.lvlm.parsers.reply_text import is_cut
from ood_lab.schema.run_record import AskingRecord

#: Kinds of failures, and questions of each, that are named.
_KINDS, _IDS = 8, 3
#: Sets of questions that consist of two, which ``split`` tells apart.
JoinedSets = Mapping[str, tuple[str, str]]


def failures(answers: Sequence[Answer]) -> str:
    """Every kind of failure with how many there are and the ids of the first questions.

    Errors that differ only in numbers are of one kind.
    """
    failed = [answer for answer in answers if answer.error]
    kinds = grouped((re.sub(r"\d+", "#", answer.error or ""), answer) for answer in failed)
    parts = []
    for results in sorted(kinds.values(), key=len, reverse=True)[:_KINDS]:
        ids = ", ".join(answer.question_id for answer in results[:_IDS])
        more = ", ..." if len(results) > _IDS else ""
        parts.append(f"{len(results):,} x {results[0].error} [{ids}{more}]")
    rest = len(kinds) - _KINDS
    return "; ".join([*parts, *([f"{rest} more kinds"] if rest > 0 else [])])


def asking_facts(answers: Sequence[Answer], cost_of: CostOf | None) -> AskingRecord:
    """Tokens, cost, retries and latency of all calls that the answers came from.

    Answers that were kept count as new ones do; an answer to several questions counts once.

    Args:
        answers: of a run.
        cost_of: see :class:`~ood_lab.lvlm.chat.base.ChatModel`; None = the cost is not known.
    """
    calls = list({answer.key: answer for answer in answers}.values())
    times = [call.latency_s for call in calls if call.latency_s is not None]
    usage = [call.usage for call in calls if call.usage]
    costs = [cost_of(item) for item in usage] if cost_of else []
    prices = [cost for cost in costs if cost is not None]
    return AskingRecord(
        calls=len(calls),
        input_tokens=sum(u.get("prompt_tokens", 0) for u in usage) if usage else None,
        output_tokens=sum(u.get("completion_tokens", 0) for u in usage) if usage else None,
        cost=round(sum(prices), 6) if prices else None,
        retries=sum(call.retries for call in calls),
        latency_s=round(float(np.median(times)), 4) if times else None,
        latency_s_95=round(float(np.quantile(times, 0.95)), 4) if times else None,
    )


def seconds_by_set(asked: pd.DataFrame, answers: Answers, joined: JoinedSets) -> dict[str, float]:
    """Seconds of all calls by set of questions; a call for several questions of a set counts once.

    Args:
        asked: ``question_id, split``.
        answers: by the id of the question. Sets without a known time are skipped.
        joined: sets that consist of two values of ``split``, in place of the second.
    """
    results = {}
    sets: dict[str, tuple[str, ...]] = {s: (s,) for s in asked["split"].dropna().unique()}
    for name, parts in joined.items():
        if sets.pop(parts[1], None):
            sets[name] = parts
    for split, values in sets.items():
        ids = asked.loc[asked["split"].isin(values), "question_id"]
        calls = {answers[item].key: answers[item].latency_s for item in ids if item in answers}
        times = [seconds for seconds in calls.values() if seconds is not None]
        if times:
            results[str(split)] = round(sum(times), 2)
    return results


def asking_sentence(asking: AskingRecord) -> str:
    """The same in a sentence."""
    parts = [f"The answers came from {asking.calls:,} calls"]
    if asking.input_tokens is not None:
        parts.append(f"{asking.input_tokens:,} tokens of input")
        parts.append(f"{asking.output_tokens:,} of output")
    parts += [] if asking.cost is None else [f"a cost of {asking.cost:.2f}"]
    parts += [f"{asking.retries:,} retries"] if asking.retries else []
    if asking.latency_s is not None:
        median, slow = (f"{s:.3g} s" for s in (asking.latency_s, asking.latency_s_95))
        parts.append(f"a median latency of {median} (95% within {slow})")
    return ", ".join(parts) + "."


#: Above this share of unparsed replies a run recommends ``reader=...``.
_MANY_UNREAD = 0.05


def answer_warnings(results: Sequence[Answer]) -> Iterator[str]:
    """Failed requests and cut replies."""
    if failed := sum(answer.error is not None for answer in results):
        yield (
            f"{failed:,} of {len(results):,} questions have no answer, and the numbers skip "
            f"them: {failures(results)}"
        )
    if cut := sum(answer.error is None and is_cut(answer.finish_reason) for answer in results):
        yield (
            f"{cut:,} of {len(results):,} replies were cut at their longest length: an answer that "
            "is missing there is unparsed, and a caption read as far as it goes; give more room "
            "(lvlm.max_tokens of a server, lvlm.max_new_tokens of a local model)"
        )


def unread_warnings(judgements: Iterable[pd.DataFrame]) -> Iterator[str]:
    """What to do where many replies could not be read by a parser.

    Args:
        judgements: tables of single answers, see :func:`~ood_lab.lvlm.answers.judgements.judge`.
    """
    status = pd.concat([table["status"] for table in judgements if "status" in table])
    lost, reply = int((status == UNPARSED).sum()), int((status != FAILED).sum())
    if lost > _MANY_UNREAD * reply:
        yield (
            f"{lost:,} of {reply:,} replies ({lost / reply:.0%}) say nothing that the parser can "
            "read: have a language model read them with task.parser=reader reader=openai "
            "reader.model=NAME"
        )
