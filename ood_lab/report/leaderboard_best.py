"""Which rows of a leaderboard are not significantly worse than the best of their column."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping
from typing import Any

import pandas as pd

from ood_lab.metrics import metric_of
from ood_lab.report.view import marked

#: ``(run, metric, set, detector)`` → outcome of the paired tests inside that run.
Pairs = Mapping[tuple[Any, ...], bool]
Row = Mapping[Any, Any]

ALPHA = 0.05
RULE = (
    "Compared with the best value of the column. Detectors of one run with one seed: the paired "
    "tests of that run (DeLong, bootstrap; Holm). All rows of the table with several seeds: "
    "Welch's t-test over the seeds, 5%, not corrected. Else: a difference within sqrt(a² + b²), a "
    "and b the half-widths of the two 95% sampling intervals. Where no test is possible, the best "
    "alone is marked; what shares its value as shown is marked with it. A network that is no "
    "better than chance on ID carries no mark, and a single row has none."
)


def mark_best(rows: pd.DataFrame, pairs: Pairs, unmarked: Collection[str] = ()) -> pd.Series:
    """True for the best row of every column, and for those not significantly worse.

    A column is one OOD set and metric; see :data:`RULE`.

    Args:
        rows: ``run, detector, ood, metric, value, n_seeds, seed_std, sampling_half_width``.
        pairs: outcome of the tests inside runs of one seed.
        unmarked: runs whose rows are neither marked nor compared with.
    """
    best = pd.Series(False, index=rows.index)
    ranks = rows["metric"].map(lambda name: metric_of(name).ranks).astype(bool)
    left_out = ~ranks | rows["run"].isin(unmarked)
    ranked = rows[~left_out & rows["value"].notna()]
    seeds_vary = bool(rows["n_seeds"].min() > 1)  # one kind of test for all, or rows contradict
    for (_, name), column in ranked.groupby(["ood", "metric"], sort=False):
        metric = str(name)
        values = column["value"]
        leader = values.idxmax() if metric_of(metric).better == "higher" else values.idxmin()
        records = column.to_dict("index")
        not_worse = {
            index
            for index, row in records.items()
            if index == leader or _not_worse(row, records[leader], pairs, seeds_vary)
        }
        leaders: set[Hashable] = marked(values.to_dict(), metric, not_worse)
        best |= best.index.isin(list(leaders))
    return best


def _not_worse(row: Row, leader: Row, pairs: Pairs, seeds_vary: bool) -> bool | None:
    """Outcome of the test of ``row`` against the best of its column; None without a test."""
    key = (row["run"], row["metric"], row["ood"], row["detector"])
    if row["run"] == leader["run"] and key in pairs:
        return pairs[key]
    # Seeds that all gave the same number say nothing about chance.
    if seeds_vary and row["seed_std"] + leader["seed_std"] > 0:
        stats = [x[k] for x in (row, leader) for k in ("value", "seed_std", "n_seeds")]
        from scipy.stats import ttest_ind_from_stats  # half a second to load, for few tables

        return bool(ttest_ind_from_stats(*stats, equal_var=False).pvalue >= ALPHA)
    reach = math.hypot(row["sampling_half_width"], leader["sampling_half_width"])
    return None if math.isnan(reach) else abs(row["value"] - leader["value"]) <= reach
