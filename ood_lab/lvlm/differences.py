"""Answers of several models to the same questions."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ood_lab.errors import UserError


def same_questions(judged: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Answers of several models to the same questions, with a column ``model``.

    Raises:
        UserError: they were not asked the same.
    """
    wanted: set[tuple[str, str, str]] | None = None
    for name, table in judged.items():
        found = set(zip(table["question_id"], table["text"], table["truth"], strict=True))
        if wanted is not None and found != wanted:
            missing = len(wanted ^ found)
            raise UserError(
                f"{name} was asked other questions ({missing:,} differ): only answers to the same "
                "questions can be compared"
            )
        wanted = found
    return pd.concat([table.assign(model=name) for name, table in judged.items()])
