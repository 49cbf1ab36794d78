"""A language model that says what open answers mean: yes or no."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ood_lab.lvlm.answers.answer_files import Answers
from ood_lab.lvlm.answers.judgements import PARSED, UNPARSED, judge
from ood_lab.lvlm.answers.text_model import TextModel
from ood_lab.lvlm.parsers import NO, OURS, PARSERS, YES, YES_NO_PARSERS, Parser, parser_of
from ood_lab.lvlm.questions.question_files import Questions

#: ``task.parser`` that has ``reader=...`` read the answers.
READER = "reader"
_TEXT = (
    "An assistant was asked a question about an image, which you do not see. Say what its answer "
    "means; do not answer the question yourself.\n"
    "Question: {question}\nAnswer: {reply}\n"
    "Does this answer mean yes or no? Reply with one word: yes, no or unclear."
)
#: MMBench's second step (arXiv 2307.06281).
_MATCHING = (
    "Match an answer to one of the options of a question, whichever means the same. If it means "
    "neither of them, reply with C.\n"
    "Question: {question}\nOptions: A. yes B. no\nAnswer: {reply}\n"
    "Reply with one letter, A, B or C."
)
#: Behind an answer that reached its longest length.
_CUT = " [the answer breaks off here]"


def parsers_of(questions: Questions, given: str | None) -> dict[str, str]:
    """By parser that reads any reply, whose rule it is; captions have none.

    Args:
        questions: those that were sent.
        given: parser of yes/no answers in place of their own; :data:`READER` is one.
    """
    names = dict.fromkeys(parser_of(question.parser, given) for question in questions)
    known = {name: parser.source for name, parser in PARSERS.items()} | {READER: OURS}
    return {name: known[name] for name in names if name in known}


def read_by_reader(questions: Questions, answers: Answers, model: TextModel) -> pd.DataFrame:
    """What every reply says, where a language model reads those to yes/no questions.

    A reply that is nothing but yes or no is not shown to it. What it finds unclear is unparsed.
    Answers of other kinds are read by the parsers of their questions.

    Args:
        questions: those that were sent.
        answers: by the id of the question.
        model: reads texts only.

    Returns:
        The table of :func:`~ood_lab.lvlm.answers.judgements.judge`, and ``matched_by`` (``reader``,
        or ``""``).

    Raises:
        UserError: see :meth:`~ood_lab.lvlm.answers.text_model.TextModel.replies`.
    """
    judged = judge(questions, answers, "strict")
    yes_no = np.array([question.parser in YES_NO_PARSERS for question in questions], bool)
    still_open = (judged["status"] == UNPARSED) & (judged["reply"].str.strip() != "") & yes_no
    rows = judged[still_open]
    ends = rows["cut"].map({True: _CUT, False: ""})
    rows = rows.assign(reply=rows["reply"].str.strip() + ends)
    return matched(judged, rows, _TEXT, model, PARSERS["default"], READER)


def second_step(judged: pd.DataFrame, model: TextModel) -> pd.DataFrame:
    """MMBench's second step: a language model reads the replies that the parser could not.

    What it cannot match either stays unparsed.

    Args:
        judged: see :func:`ood_lab.lvlm.answers.judgements.judge`.
        model: reads texts only.

    Returns:
        ``parsed``, ``correct`` and ``status`` filled in, and ``matched_by`` (``judge``, or ``""``).

    Raises:
        UserError: see :meth:`~ood_lab.lvlm.answers.text_model.TextModel.replies`.
    """
    open_rows = judged[judged["status"] == UNPARSED]
    return matched(judged, open_rows, _MATCHING, model, PARSERS["mmbench"], "judge", "match")


def matched(
    judged: pd.DataFrame,
    rows: pd.DataFrame,
    prompt: str,
    model: TextModel,
    parser: Parser,
    by: str,
    kind: str | None = None,
) -> pd.DataFrame:
    """A table in which a language model has read some replies.

    Args:
        judged: see :func:`ood_lab.lvlm.answers.judgements.judge`.
        rows: that it reads, by the index of the table.
        prompt: with ``{question}``, ``{reply}`` and, if it is shown, ``{truth}``.
        model: the reader.
        parser: reads its replies; where it finds neither yes nor no, the row stays unchanged.
        by: what ``matched_by`` says of rows that it has read; the others have ``""``.
        kind: of question, for its id; None = ``by``.
    """
    texts = [
        prompt.format(question=asked, reply=reply.strip(), truth=" or ".join(truth.split("\n")))
        for asked, reply, truth in zip(*(rows[k] for k in ("text", "reply", "truth")), strict=True)
    ]
    said = {
        text: None if reply is None else parser(reply)
        for text, reply in model.replies(kind or by, texts).items()
    }
    table = judged.assign(matched_by="")
    for row, text in zip(rows.index, texts, strict=True):
        if said[text] in (YES, NO):
            right = said[text] == table.at[row, "truth"]
            columns = ["parsed", "correct", "status", "matched_by"]
            table.loc[row, columns] = [said[text], right, PARSED, by]
    return table
