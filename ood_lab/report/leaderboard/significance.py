"""Which rows of a leaderboard are not significantly worse than the best of their column."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping
from itertools import compress, takewhile
from typing import Any

import pandas as pd

from ood_lab.metrics import metric_of
from ood_lab.schema.results import Row, keys_of

#: ``(run, metric, set, detector)`` → outcome of the paired tests inside that run.
Pairs = Mapping[tuple[Any, ...], bool]

ALPHA = 0.05
_CHANCE = 0.5
#: Columns that name the test of a number inside a run.
PAIR = ["run", "metric", "dataset", "detector"]
RULE = (
    "Detectors of one run with one seed: the tests of that run (AUROC and means: multiple "
    "comparisons with the best, Hsu 1981; others: paired bootstrap, Holm-corrected). All rows "
    "with several seeds: Welch's t-test over the seeds against the best value, 5%, uncorrected. "
    "Otherwise: a difference within sqrt(a² + b²) of the two 95% sampling intervals ±a and ±b. "
    "Without a test: the best value as shown. Never marked: rows behind a significantly worse one, "
    "a single row, and a network at chance on ID test. An AUROC is marked only where it is "
    "significantly above 50% (lower end of the 95% interval, mean over seeds). A column of a run "
    "has marks only where the AUROC of one of its detectors is."
)


def mark_best(rows: pd.DataFrame, pairs: Pairs, unmarked: Collection[str] = ()) -> pd.Series:
    """True for the best row of every column, and for those not significantly worse.

    A column is one OOD dataset and metric; see :data:`RULE`.

    Args:
        rows: ``run, detector, dataset, metric, value, n_seeds, seed_std, sampling_half_width``, and
            ``low``, the lower end of the interval; NaN = there is none.
        pairs: outcome of the tests inside runs of one seed.
        unmarked: runs whose rows are neither marked nor compared with.
    """
    best: list[Hashable] = []
    ranks = rows["metric"].map(lambda name: metric_of(name).ranks).astype(bool)
    at_chance = _at_chance(rows)
    seeds_vary = bool(rows["n_seeds"].min() > 1)  # one kind of test for all, or rows contradict

    def not_worse(row: Row, leader: Row) -> bool:
        key = tuple(row[name] for name in PAIR)
        if row["run"] == leader["run"] and key in pairs:
            return pairs[key]
        # Seeds that all gave the same number say nothing about chance.
        if seeds_vary and row["seed_std"] + leader["seed_std"] > 0:
            from scipy.stats import ttest_ind_from_stats  # half a second to load, for few tables

            test = ttest_ind_from_stats(
                mean1=row["value"],
                std1=row["seed_std"],
                nobs1=row["n_seeds"],
                mean2=leader["value"],
                std2=leader["seed_std"],
                nobs2=leader["n_seeds"],
                equal_var=False,
            )
            return bool(test.pvalue >= ALPHA)
        return within_noise(row, leader)

    ranked = rows[ranks & rows["value"].notna() & ~rows["run"].isin(unmarked)]
    for (_, name), column in ranked.groupby(["dataset", "metric"], sort=False):
        outcomes = [pairs.get(key) for key in keys_of(column, PAIR)]
        if column["run"].nunique() == 1 and None not in outcomes:
            best += compress(column.index, outcomes if len(column) > 1 else [])
            continue
        if len(column) > 1:
            rest = column[~at_chance[column.index]]
            best += best_rows(rest, metric_of(str(name)).better, not_worse)
    return pd.Series(rows.index.isin(best), index=rows.index)


def _at_chance(rows: pd.DataFrame) -> pd.Series:
    """Rows of a dataset, or mean, on which their AUROC is not significantly above 50%."""
    aurocs = rows[rows["metric"] == "auroc"]
    low = aurocs["low"].fillna(aurocs["value"])  # of one image nothing is significant
    keys = ["run", "detector", "dataset"]
    at_chance = set(keys_of(aurocs[low <= _CHANCE], keys))
    return pd.Series([key in at_chance for key in keys_of(rows, keys)], index=rows.index)


def best_rows(
    column: pd.DataFrame, better: str | None, not_worse: Callable[[Row, Row], bool]
) -> list[Hashable]:
    """The best row of a column, and those behind it up to the first that is worse.

    A test without power would else mark what is behind a significantly worse row.

    Args:
        column: ``value`` and what the test reads; may be empty.
        better: ``lower`` or ``higher``.
        not_worse: test of a row against the best.
    """
    order = column.sort_values("value", ascending=better == "lower", kind="stable")
    rows = order.to_dict("records")
    alike = takewhile(lambda row: row is rows[0] or not_worse(row, rows[0]), rows)
    return list(order.index[: len(list(alike))])


def within_noise(row: Row, leader: Row) -> bool:
    """Whether two rows differ by no more than the intervals together; without them, as shown."""
    reach = math.hypot(row["sampling_half_width"], leader["sampling_half_width"])
    if math.isnan(reach):
        return round(row["value"], 3) == round(leader["value"], 3)
    return bool(abs(row["value"] - leader["value"]) <= reach)
