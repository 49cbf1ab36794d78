"""Answers read by parsers and compared with the truth; no model is needed here."""

from __future__ import annotations

import json

import pandas as pd

from ood_lab.common.arguments import Fields
from ood_lab.lvlm.answers.answer_files import NOT_ASKED, Answer, Answers
from ood_lab.lvlm.parsers import parser_named, parser_of
from ood_lab.lvlm.parsers.reply_text import is_cut, read, without_reasoning
from ood_lab.lvlm.questions.question_files import Question, Questions

#: ``status`` of an answer: read, not readable, or never given.
PARSED, UNPARSED, FAILED = "parsed", "unparsed", "failed"
#: Key in ``meta``, and what is read from a reply that says neither yes nor no and is right in that.
UNSURE = "unsure"
#: Columns of every results table: how many were asked, not used, or cut at their longest length.
SIZES = ("n_asked", "n_unparsed", "n_cut", "n_failed")

_COLUMNS = ["question_id", "pair_id", "task", "truth", "text", "file", "reply", "parsed", "correct"]
_COLUMNS += ["parser", "status", "cut", "error", "p_yes"]
#: Of multiple choice, where it is known.
P_OPTIONS = "p_options"


def judge(questions: Questions, answers: Answers, parser: str | None = None) -> pd.DataFrame:
    """What every reply says, and whether it is right.

    A failed request, and a question without an answer, is ``failed``: it is never parsed. A reply
    that is nothing but reasoning, or a declined answer, is unparsed by any parser. Of a
    reply that was cut, see :func:`ood_lab.lvlm.parsers.reply_text.read`.

    Args:
        questions: of the answers.
        answers: by the id of the question.
        parser: reads the answers to yes/no questions in place of their own.

    Returns:
        One row per question: ``question_id, pair_id, task, truth, text, reply`` (without its
        reasoning), ``parsed, correct, parser, status, cut, p_yes`` and what is in ``meta``;
        ``parsed`` is None and ``correct`` false unless the status is ``parsed``.

    Raises:
        UserError: there is no such parser.
    """
    if parser is not None:
        parser_named(parser)
    rows = [_row(q, answers.get(q.question_id, NOT_ASKED), parser) for q in questions]
    meta = pd.DataFrame([dict(question.meta) for question in questions])
    options = [P_OPTIONS] if any(P_OPTIONS in row for row in rows) else []
    table = pd.DataFrame(rows, columns=[*_COLUMNS, *options])
    return table.join(meta[[name for name in meta if name not in table]])


def with_unsure(judgements: pd.DataFrame) -> pd.DataFrame:
    """A table of :func:`judge` in which it may be right to say neither yes nor no.

    Of questions whose ``meta`` says :data:`UNSURE`, a whole reply that is unparsed is right, and
    read as that word.
    """
    if UNSURE not in judgements:
        return judgements
    unsure = judgements[UNSURE].fillna(False).astype(bool) & (judgements["status"] == UNPARSED)
    reply = unsure & ~judgements["cut"].astype(bool) & (judgements["reply"].str.strip() != "")
    return judgements.assign(
        parsed=judgements["parsed"].mask(reply, UNSURE),
        correct=judgements["correct"].astype(bool) | reply,
        status=judgements["status"].mask(reply, PARSED),
    )


def sizes_of(rows: pd.DataFrame) -> dict[str, int]:
    """How many rows of :func:`judge` there are, and how many of them are what: :data:`SIZES`."""
    counts = (
        len(rows),
        (rows["status"] == UNPARSED).sum(),
        rows["cut"].sum(),
        (rows["status"] == FAILED).sum(),
    )
    return dict(zip(SIZES, map(int, counts), strict=True))


def _row(question: Question, answer: Answer, parser: str | None) -> Fields:
    name = parser_of(question.parser, parser)
    error = answer.error
    reply = "" if error else answer.response
    cut = not error and is_cut(answer.finish_reason)
    silent = answer.reasoning is not None and not reply.strip()
    parsed = None if error or silent else read(reply, parser_named(name), cut, question.text)
    return {
        "question_id": question.question_id,
        "pair_id": question.pair_id or question.question_id,
        "task": question.task,
        "truth": question.answer,
        "text": question.text,
        "file": question.image,
        "reply": without_reasoning(reply),
        "parsed": parsed,
        "correct": parsed == question.answer,
        "parser": name,
        "status": FAILED if error else UNPARSED if parsed is None else PARSED,
        "cut": cut,
        "error": error,
        "p_yes": answer.p_yes,
        **({P_OPTIONS: json.dumps(dict(answer.p_options))} if answer.p_options else {}),
    }
