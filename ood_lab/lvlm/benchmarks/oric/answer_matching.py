"""MMBench's second step (arXiv 2307.06281): a language model reads what the parser could not."""

from __future__ import annotations

import pandas as pd

from ood_lab.lvlm.answers.judgements import UNPARSED
from ood_lab.lvlm.answers.open_answer_reader import matched
from ood_lab.lvlm.answers.text_model import TextModel
from ood_lab.lvlm.parsers import PARSERS

_TEXT = (
    "Match an answer to one of the options of a question, whichever means the same. If it means "
    "neither of them, reply with C.\n"
    "Question: {question}\nOptions: A. yes B. no\nAnswer: {reply}\n"
    "Reply with one letter, A, B or C."
)


def second_step(judged: pd.DataFrame, model: TextModel) -> pd.DataFrame:
    """The same table, where replies that were not matched are read by a language model.

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
    return matched(judged, open_rows, _TEXT, model, PARSERS["mmbench"], "judge", "match")
