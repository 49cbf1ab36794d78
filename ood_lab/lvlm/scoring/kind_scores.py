"""Multiple choice, counts and free text: shares of right answers, each kind with its table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Literal

import numpy as np
import pandas as pd

from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.answers.judgements import FAILED, P_OPTIONS, PARSED, UNPARSED
from ood_lab.lvlm.answers.open_answer_reader import READER, TextModel, matched
from ood_lab.lvlm.parsers import PARSERS, YES
from ood_lab.lvlm.parsers.free_text import bare, is_right
from ood_lab.lvlm.questions.question_files import CHOICE, COUNT, FREE_TEXT
from ood_lab.lvlm.questions.question_forms import ROUND
from ood_lab.lvlm.scoring.scored_results import estimate_rows, paired_contrasts
from ood_lab.lvlm.scoring.yes_no_scores import (
    Unparsed,
    by_place,
    clusters_of,
    kept_rows,
    whole_groups,
)
from ood_lab.metrics.resampling.clustered_bootstrap import (
    clustered,
    shares,
)
from ood_lab.schema.arrays import Ints
from ood_lab.schema.results import Names, Row

#: When a free text is right: it has a right answer in it; it is one; a chat model says so.
Matching = Literal["contained", "exact", "reader"]
_TEXT = (
    "An assistant was asked a question about an image, which you do not see. Compare its answer "
    "with the right one; do not answer the question yourself.\n"
    "Question: {question}\nRight answer: {truth}\nAnswer: {reply}\n"
    "Does the answer say the same as the right one? Reply with one word: yes or no."
)
_CIRCULAR = "circular_accuracy"

#: By kind: the title of its table; its metrics, the accuracy first, and what they are called.
KINDS: Mapping[str, tuple[str, Names]] = {
    CHOICE: (
        "Multiple choice",
        {"choice_accuracy": "Acc", _CIRCULAR: "right in every order"},
    ),
    COUNT: ("Counts", {"count_accuracy": "Acc", "count_within_one": "within 1"}),
    FREE_TEXT: ("Free text", {"text_accuracy": "Acc"}),
}
#: The accuracy of each kind, and what it is called where kinds stand beside each other.
ACCURACIES = {next(iter(metrics)): f"{title}: Acc" for title, metrics in KINDS.values()}


def by_probability(judgements: pd.DataFrame) -> pd.DataFrame:
    """Answers to multiple choice as the most probable letter; unparsed where none is known."""
    table = judgements.assign(correct=judgements["correct"].astype(bool))
    rows = table.index[(table["task"] == CHOICE) & (table["status"] != FAILED)]
    chances = table.get(P_OPTIONS, pd.Series(dtype=object)).reindex(rows)
    letters = chances.map(_most_probable, na_action="ignore")
    table.loc[rows, "parsed"] = letters.where(letters.notna(), None)
    table.loc[rows, "status"] = np.where(letters.isna(), UNPARSED, PARSED)
    table.loc[rows, "correct"] = letters == table.loc[rows, "truth"]
    return table


def _most_probable(options: str) -> str:
    chances: dict[str, float] = json.loads(options)
    return max(chances, key=chances.__getitem__)


def by_text(judgements: pd.DataFrame, matching: Matching, model: TextModel | None) -> pd.DataFrame:
    """Free texts held against the right answers, one a line; articles, case and marks are ignored.

    ``contained``: see :func:`~ood_lab.lvlm.parsers.free_text.is_right`.

    Args:
        judgements: see :func:`ood_lab.lvlm.answers.judgements.judge`.
        matching: when a text is right. A reader reads those that are not equal.
        model: the reader.
    """
    rows = judgements["task"] == FREE_TEXT
    if not rows.any():
        return judgements

    def right(status: str, parsed: object, truth: object) -> bool:
        answers, text = str(truth).split("\n"), str(parsed)
        contained = matching == "contained" and is_right(text, answers)
        return status == PARSED and (contained or bare(text) in map(bare, answers))

    table = judgements.assign(correct=judgements["correct"].astype(bool))
    columns = table.loc[rows, ["status", "parsed", "truth"]].itertuples(index=False)
    table.loc[rows, "correct"] = [right(*row) for row in columns]
    if matching != READER or model is None:
        return table
    shown = table[rows & (table["status"] == PARSED) & ~table["correct"]]
    said = matched(shown.assign(truth=YES), shown, _TEXT, model, PARSERS["default"], READER)
    table.loc[shown.index, "correct"] = said["correct"].astype(bool)
    return table


def kind_rows(
    judgements: pd.DataFrame,
    splits: Sequence[str],
    first: Unparsed,
    min_count: int = 10,
    *,
    resampling: Resampling,
) -> Iterator[Row]:
    """Rows of a results table, of every kind of :data:`KINDS` in the file.

    Of each set, of all together, by level of shift and by ``category``; unparsed answers are
    treated both ways, as :func:`~ood_lab.lvlm.scoring.yes_no_scores.yes_no_rows` does. Intervals
    resample what shares a ``pair_id``: all orders of the options of a question.

    Args:
        judgements: see :func:`ood_lab.lvlm.answers.judgements.judge`.
        splits: names of the sets, in order.
        first: the way of treating unparsed answers that comes first.
        min_count: levels, cells and categories with fewer questions are missing.
        resampling: of the bootstrap.
    """
    for kind, (_, metrics) in KINDS.items():
        rows = judgements[judgements["task"] == kind]
        for keys, part, kept, read in by_place(rows, splits, first, min_count, ["category"]):
            counted = partial(shares, [*metrics])
            results = clustered(
                _counts(read), counted, clusters_of(read), resampling=resampling
            ).estimates()
            if results.pop(_CIRCULAR, None) and ROUND in read and read[ROUND].notna().any():
                results[_CIRCULAR], _ = whole_groups(read, ROUND, resampling)
            n = clusters_of(kept).nunique()
            yield from estimate_rows({**keys, "unit": "question"}, results, n, part)


def _counts(rows: pd.DataFrame) -> Ints:
    """Of each answer whether it is right, whether a count is within 1, and 1: ``[N, 3]``."""
    said, truth = (pd.to_numeric(rows[key], errors="coerce") for key in ("parsed", "truth"))
    right, close = rows["correct"].to_numpy(bool), ((said - truth).abs() <= 1).to_numpy(bool)
    return np.stack([right, close, np.ones(len(rows), bool)], axis=1).astype(np.int64)


def kind_contrasts(judgements: pd.DataFrame, resampling: Resampling) -> pd.DataFrame:
    """How models differ in the accuracy of each kind; an unparsed answer is wrong.

    Args:
        judgements: the answers of all models, with ``model``.
        resampling: of the bootstrap.
    """
    tables = [pd.DataFrame()]
    for kind, (_, names) in KINDS.items():
        rows = judgements[judgements["task"] == kind]
        rows = rows[kept_rows(rows, "wrong")]
        if rows["model"].nunique() > 1:
            metrics, clusters = partial(shares, [*names][:1]), clusters_of(rows)
            table = paired_contrasts(
                _counts(rows), clusters, rows["model"], metrics, resampling=resampling
            )
            tables.append(table)
    return pd.concat(tables, ignore_index=True)
