"""Does the model know what it does not know? Its doubt against its errors and against OOD."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.answers.judgements import PARSED
from ood_lab.lvlm.questions.question_files import YES_NO
from ood_lab.lvlm.scoring.scored_results import estimate_rows, of_set
from ood_lab.metrics import auroc, percentile_interval
from ood_lab.metrics.resampling.intervals import Estimate
from ood_lab.schema.arrays import Floats, Reals
from ood_lab.schema.results import Row

#: Metrics of the table, and what they are called there.
METRICS = {"auroc_errors": "AUROC errors", "auroc_ood": "AUROC vs ID"}
#: Resamples at most: each sorts the answers anew.
_MAX_DRAWS = 200


def doubt(p_yes: Reals) -> Floats:
    """``1 - max(P(yes), P(no))`` with ``P(no) = 1 - P(yes)``: from 0, certain, to 1/2."""
    p = np.asarray(p_yes, np.float64)
    return 1.0 - np.maximum(p, 1.0 - p)


def uncertainty_rows(
    judgements: pd.DataFrame,
    splits: Sequence[str],
    every: str,
    id_split: str | None = None,
    *,
    resampling: Resampling,
) -> Iterator[Row]:
    """Rows of a results table: AUROCs of doubt of all splits.

    ``auroc_errors``: is doubt higher where the answer is wrong? ``auroc_ood`` of an OOD split: is
    it higher than on ID pairs? Nothing where the model gives no probabilities. Intervals resample
    pairs.

    Args:
        judgements: see :func:`ood_lab.lvlm.answers.judgements.judge`; answers without ``p_yes`` are
            skipped.
        splits: names of the sets, in order.
        every: what all splits together are called; "" = they are skipped.
        id_split: the set that the others are held against; None = there is none.
        resampling: of the bootstrap; no more than 200 draws are made.
    """
    rows = answered(judgements)
    asked = judgements[judgements["task"] == YES_NO]
    for split in [*splits, every] if every else splits:
        part = of_set(rows, split, every)
        if not len(part):
            continue
        results = {"auroc_errors": _estimate(part, "wrong", (False, True), resampling)}
        if split not in (id_split, every) and (rows["split"] == id_split).any():
            results["auroc_ood"] = _estimate(rows, "split", (id_split, split), resampling)
        of = of_set(asked, split, every)
        yield from estimate_rows({"split": split}, results, part["pair_id"].nunique(), of)


def answered(judgements: pd.DataFrame) -> pd.DataFrame:
    """Parsed yes/no answers with a probability: ``pair_id, split, wrong, doubt``."""
    rows = judgements[(judgements["task"] == YES_NO) & (judgements["status"] == PARSED)]
    rows = rows[rows["p_yes"].notna()]
    table = rows[["pair_id", "split"]].reset_index(drop=True)
    return table.assign(
        wrong=~rows["correct"].to_numpy(bool), doubt=doubt(rows["p_yes"].to_numpy(float))
    )


def _estimate(
    rows: pd.DataFrame, column: str, groups: tuple[Any, Any], resampling: Resampling
) -> Estimate:
    """AUROC of the doubt of two groups of a column, the second higher, with pairs resampled."""

    def value(rows: pd.DataFrame) -> float:
        lower, higher = (rows.loc[rows[column] == group, "doubt"].to_numpy() for group in groups)
        return float(auroc(lower, higher)) if len(lower) and len(higher) else float("nan")

    codes, pairs = pd.factorize(rows["pair_id"])
    members = np.split(np.argsort(codes, kind="stable"), np.bincount(codes).cumsum()[:-1])
    rng = np.random.default_rng(resampling.seed)
    draws = []
    for _ in range(min(resampling.draws, _MAX_DRAWS)):
        chosen = rng.integers(len(pairs), size=len(pairs))
        draws.append(value(rows.iloc[np.concatenate([members[c] for c in chosen])]))
    point = value(rows)
    if np.isnan(point):
        return Estimate(point)
    low, high = percentile_interval(np.array(draws), len(pairs))
    return Estimate(point, float(low), float(high))
