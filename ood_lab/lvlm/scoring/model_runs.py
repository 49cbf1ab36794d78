"""Answers of several models to the same question pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.lvlm.questions.question_files import YES_NO
from ood_lab.lvlm.scoring.yes_no_scores import COUNTS, Unparsed, pair_table
from ood_lab.schema.arrays import Bools, Ints


@dataclass(frozen=True)
class ModelRun:
    """The judged answers of one model.

    Attributes:
        name: of the model.
        path: run folder.
        judged: see :func:`ood_lab.lvlm.answers.judgements.judge`.
    """

    name: str
    path: Path
    judged: pd.DataFrame


def wrong_answers(
    runs: Sequence[ModelRun], pairs: pd.DataFrame
) -> tuple[dict[str, Bools], pd.DataFrame]:
    """Which answers of each model are wrong, and the questions, of all splits.

    Args:
        runs: of the models.
        pairs: that count, see :func:`common_pairs`.
    """
    answers = [run.judged[run.judged["task"] == YES_NO] for run in runs]
    asked = [a[a["pair_id"].isin(pairs["pair_id"])].set_index("question_id") for a in answers]
    wrong = {
        run.name: ~a.loc[asked[0].index, "correct"].to_numpy(bool)
        for run, a in zip(runs, asked, strict=True)
    }
    return wrong, asked[0]


def common_pairs(
    runs: Sequence[ModelRun], unparsed: Unparsed = "wrong"
) -> tuple[pd.DataFrame, Ints]:
    """The question pairs that count for every model, and their counts.

    Args:
        runs: of M models.
        unparsed: see :func:`~ood_lab.lvlm.scoring.yes_no_scores.pair_table`.

    Returns:
        One row per pair (``pair_id, split, category, image, ...``), and ``[M, P, 6]``.

    Raises:
        UserError: the models were not asked the same questions, or share no pair.
    """
    tables = [pair_table(run.judged, unparsed).set_index("pair_id") for run in runs]
    for run, table in zip(runs, tables, strict=True):
        if set(table.index) != set(tables[0].index):
            raise UserError(
                f"{run.path} and {runs[0].path} asked other questions: give every run the same "
                "task.questions=FILE"
            )
    tables = [table.loc[tables[0].index] for table in tables]
    kept = np.logical_and.reduce([table["kept"].to_numpy(bool) for table in tables])
    if not kept.any():
        raise UserError("no question pair was answered by all models")
    counts = np.stack([table.loc[kept, COUNTS].to_numpy(np.int64) for table in tables])
    return tables[0][kept].drop(columns=COUNTS).reset_index(), counts
