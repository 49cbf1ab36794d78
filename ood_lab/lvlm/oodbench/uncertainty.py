"""Does the model know what it does not know? Its doubt against its errors and against OOD."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ood_lab.lvlm.judged import PARSED
from ood_lab.lvlm.oodbench.division import ID, OOD_H, OOD_S
from ood_lab.lvlm.yes_no import YES_NO
from ood_lab.metrics import auroc, percentile_interval
from ood_lab.metrics.selective import measures_of

Floats = NDArray[np.float64]


def doubt(p_yes: NDArray[np.floating]) -> Floats:
    """``1 - max(P(yes), P(no))`` with ``P(no) = 1 - P(yes)``: from 0, certain, to 1/2."""
    p = np.asarray(p_yes, np.float64)
    return 1.0 - np.maximum(p, 1.0 - p)


def uncertainty_of(judged: pd.DataFrame, draws: int = 200, seed: int = 0) -> pd.DataFrame:
    """AUROCs and failure detection, with intervals that resample pairs.

    Args:
        judged: see :func:`ood_lab.lvlm.judged.judge`; answers without ``p_yes`` are left out.
        draws: bootstrap resamples.
        seed: of them.

    Returns:
        ``metric, n, value, ci_low, ci_high``: ``auroc_errors`` (is doubt higher where the answer
        is wrong?), ``auroc_ood_s`` and ``auroc_ood_h`` (is it higher than on ID pairs?), and those
        of :meth:`ood_lab.metrics.selective.Ranked.measures` with wrong answers as failures
        (``aurc``, ``augrc``, ``accuracy_at_80``, ...). Empty where the model gives no
        probabilities.
    """
    rows = answered(judged)
    if not len(rows):
        return pd.DataFrame(columns=["metric", "n", "value", "ci_low", "ci_high"])
    codes, pairs = pd.factorize(rows["pair_id"])
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(pairs) + 1))
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(draws):
        chosen = rng.integers(len(pairs), size=len(pairs))
        drawn.append(np.concatenate([order[starts[c] : starts[c + 1]] for c in chosen]))
    found: list[dict[str, Any]] = []
    resampled = pd.DataFrame([_values(rows.iloc[part]) for part in drawn])
    for metric, point in _values(rows).items():
        if np.isnan(point):
            continue
        low, high = percentile_interval(resampled[metric], len(pairs))
        found.append(
            {"metric": metric, "n": len(rows), "value": point, "ci_low": low, "ci_high": high}
        )
    return pd.DataFrame(found, columns=["metric", "n", "value", "ci_low", "ci_high"])


def answered(judged: pd.DataFrame) -> pd.DataFrame:
    """Parsed yes/no answers with a probability: ``pair_id, split, wrong, doubt``."""
    rows = judged[(judged["task"] == YES_NO) & (judged["status"] == PARSED)]
    rows = rows[rows["p_yes"].notna()]
    table = rows[["pair_id", "split"]].reset_index(drop=True)
    return table.assign(
        wrong=~rows["correct"].to_numpy(bool), doubt=doubt(rows["p_yes"].to_numpy(float))
    )


def _between(lower: pd.Series, higher: pd.Series) -> float:
    if lower.empty or higher.empty:
        return float("nan")
    return float(auroc(lower.to_numpy(), higher.to_numpy()))


def _errors(rows: pd.DataFrame) -> float:
    return _between(rows.loc[~rows["wrong"], "doubt"], rows.loc[rows["wrong"], "doubt"])


def _against_id(split: str) -> Callable[[pd.DataFrame], float]:
    def value(rows: pd.DataFrame) -> float:
        parts = (rows.loc[rows["split"] == name, "doubt"] for name in (ID, split))
        return _between(*parts)

    return value


_METRICS: dict[str, Callable[[pd.DataFrame], float]] = {
    "auroc_errors": _errors,
    "auroc_ood_s": _against_id(OOD_S),
    "auroc_ood_h": _against_id(OOD_H),
}


def _values(rows: pd.DataFrame) -> dict[str, float]:
    """Every metric of these answers."""
    own = {metric: value(rows) for metric, value in _METRICS.items()}
    return own | measures_of(rows["doubt"], rows["wrong"])
