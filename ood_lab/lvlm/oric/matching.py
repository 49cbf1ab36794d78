"""MMBench's second step (arXiv 2307.06281): a chat model reads what the parser could not."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pandas as pd

from ood_lab.lvlm.answers import AnswerStore
from ood_lab.lvlm.asking import answers_to
from ood_lab.lvlm.chat.base import ChatModel
from ood_lab.lvlm.judged import PARSED, UNPARSED
from ood_lab.lvlm.parsers import NO, YES, mmbench
from ood_lab.lvlm.questions import Question

_TEXT = (
    "Match an answer to one of the options of a question, whichever means the same. If it means "
    "neither of them, reply with C.\n"
    "Question: {question}\nOptions: A. yes B. no\nAnswer: {reply}\n"
    "Reply with one letter, A, B or C."
)


def second_step(judged: pd.DataFrame, model: ChatModel, store: AnswerStore) -> pd.DataFrame:
    """The same table, where replies that were not matched are read by a chat model.

    What it cannot match either stays unparsed.

    Args:
        judged: see :func:`ood_lab.lvlm.judged.judge`.
        model: reads texts only.
        store: keeps what it said.

    Returns:
        ``parsed``, ``correct`` and ``status`` filled in, and ``matched_by`` (``judge``, or ``""``).

    Raises:
        UserError: the model cannot answer.
    """
    open_rows = judged.index[judged["status"] == UNPARSED]
    texts = [
        _TEXT.format(question=judged.at[row, "text"], reply=str(judged.at[row, "reply"]).strip())
        for row in open_rows
    ]
    questions = [Question(_id(text), "match", None, text, "") for text in dict.fromkeys(texts)]
    answers = answers_to(questions, Path(), model, store) if questions else []
    said = {a.prompt: None if a.error else mmbench(a.response) for a in answers}
    table = judged.assign(matched_by="")
    for row, text in zip(open_rows, texts, strict=True):
        if said[text] in (YES, NO):
            right = said[text] == table.at[row, "truth"]
            table.loc[row, ["parsed", "correct", "status", "matched_by"]] = [
                said[text],
                right,
                PARSED,
                "judge",
            ]
    return table


def _id(text: str) -> str:
    return f"match/{hashlib.sha256(text.encode()).hexdigest()[:16]}"
