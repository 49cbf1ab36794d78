"""Does the model know what it does not know? Its doubt against its errors and against OOD."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ood_lab.lvlm.answers.judgements import PARSED
from ood_lab.lvlm.benchmarks.oodbench.division import ID, OOD_H, OOD_S, SPLITS, TOGETHER
from ood_lab.lvlm.scoring.scored_results import estimate_rows
from ood_lab.lvlm.scoring.yes_no_scores import YES_NO
from ood_lab.metrics import auroc, percentile_interval
from ood_lab.metrics.record import ACCURACY_AT_80, AUGRC, AURC
from ood_lab.metrics.resampling.clustered_bootstrap import Estimate
from ood_lab.metrics.selective import MAX_DRAWS, measures_of

Floats = NDArray[np.float64]
#: Metrics of the table, and what they are called there.
METRICS = {
    "auroc_errors": "AUROC errors",
    "auroc_ood": "AUROC vs ID",
    **{metric.name: metric.title for metric in (AURC, AUGRC, ACCURACY_AT_80)},
}
DEFINITIONS = (
    (
        "Doubt",
        "1 - max(P(yes), P(no)), from 0, certain, to 1/2. AUROC errors: the probability that a "
        "wrong answer is doubted more than a right one. AUROC vs ID: that an answer about this "
        "split is doubted more than one about ID. 50% is chance.",
    ),
    (
        ", ".join(metric.title for metric in (AURC, AUGRC, ACCURACY_AT_80)),
        "Failure detection with wrong answers as failures; the answers with the most doubt are "
        "rejected first. AURC: the mean, over all shares of answers that are kept, of the share of "
        "wrong ones among them; AUGRC: of the wrong ones among all; both: lower is better. "
        "Acc@80%: the share of right answers among the 80% with the least doubt.",
    ),
)


def doubt(p_yes: NDArray[np.floating]) -> Floats:
    """``1 - max(P(yes), P(no))`` with ``P(no) = 1 - P(yes)``: from 0, certain, to 1/2."""
    p = np.asarray(p_yes, np.float64)
    return 1.0 - np.maximum(p, 1.0 - p)


def uncertainty_rows(
    judged: pd.DataFrame, every: str = TOGETHER, draws: int = MAX_DRAWS, seed: int = 0
) -> Iterator[dict[str, Any]]:
    """Rows of a results table: AUROCs of doubt and failure detection, of every split and of all.

    ``auroc_errors`` (is doubt higher where the answer is wrong?), ``auroc_ood`` of an OOD split (is
    it higher than on ID pairs?), and those of :meth:`ood_lab.metrics.selective.Ranked.measures`
    with wrong answers as failures (``aurc``, ``augrc``,
    ``accuracy_at_coverage_80``, ...). Nothing where the model gives no probabilities. Intervals
    resample pairs.

    Args:
        judged: see :func:`ood_lab.lvlm.answers.judgements.judge`; answers without ``p_yes`` are
            left out.
        every: what all splits together are called; "" = they are left out.
        draws: bootstrap resamples; no more than 200.
        seed: of them.
    """
    rows, draws = answered(judged), min(draws, MAX_DRAWS)
    asked = judged[judged["task"] == YES_NO]
    for split in [*SPLITS, every] if every else SPLITS:
        part = rows if split == every else rows[rows["split"] == split]
        if not len(part):
            continue
        found = _estimates(part, _errors, draws, seed)
        if split in (OOD_S, OOD_H) and (rows["split"] == ID).any():
            found["auroc_ood"] = _estimates(rows, _against_id(split), draws, seed)["auroc_ood"]
        of = asked if split == every else asked[asked["split"] == split]
        yield from estimate_rows({"split": split}, found, part["pair_id"].nunique(), of)


def answered(judged: pd.DataFrame) -> pd.DataFrame:
    """Parsed yes/no answers with a probability: ``pair_id, split, wrong, doubt``."""
    rows = judged[(judged["task"] == YES_NO) & (judged["status"] == PARSED)]
    rows = rows[rows["p_yes"].notna()]
    table = rows[["pair_id", "split"]].reset_index(drop=True)
    return table.assign(
        wrong=~rows["correct"].to_numpy(bool), doubt=doubt(rows["p_yes"].to_numpy(float))
    )


def _estimates(
    rows: pd.DataFrame, values: Callable[[pd.DataFrame], Mapping[str, float]], draws: int, seed: int
) -> dict[str, Estimate]:
    """Metrics of these answers, and of resamples of their pairs."""
    codes, pairs = pd.factorize(rows["pair_id"])
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(pairs) + 1))
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(draws):
        chosen = rng.integers(len(pairs), size=len(pairs))
        part = np.concatenate([order[starts[c] : starts[c + 1]] for c in chosen])
        drawn.append(values(rows.iloc[part]))
    resampled = pd.DataFrame(drawn)
    found = {}
    for metric, point in values(rows).items():
        low, high = percentile_interval(resampled[metric].to_numpy(), len(pairs))
        known = not np.isnan(point)
        found[metric] = Estimate(point, float(low), float(high)) if known else Estimate(point)
    return found


def _between(lower: pd.Series, higher: pd.Series) -> float:
    if lower.empty or higher.empty:
        return float("nan")
    return float(auroc(lower.to_numpy(), higher.to_numpy()))


def _errors(rows: pd.DataFrame) -> dict[str, float]:
    doubts = (rows.loc[~rows["wrong"], "doubt"], rows.loc[rows["wrong"], "doubt"])
    return {"auroc_errors": _between(*doubts), **measures_of(rows["doubt"], rows["wrong"])}


def _against_id(split: str) -> Callable[[pd.DataFrame], dict[str, float]]:
    def value(rows: pd.DataFrame) -> dict[str, float]:
        parts = (rows.loc[rows["split"] == name, "doubt"] for name in (ID, split))
        return {"auroc_ood": _between(*parts)}

    return value
