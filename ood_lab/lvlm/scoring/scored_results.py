"""What the results of all question benchmarks have in common."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
from numpy.typing import NDArray

from ood_lab.common.grouping import distinct
from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.answers.judgements import PARSED, SIZES, sizes_of
from ood_lab.metrics.resampling.clustered_bootstrap import (
    Metrics,
    cluster_sums,
    clustered,
    contrast,
)
from ood_lab.metrics.resampling.intervals import Estimate, clopper_pearson
from ood_lab.schema.arrays import positions
from ood_lab.schema.image_columns import LEVELS
from ood_lab.schema.results import PART, Kind, Row

#: ``split`` of all sets together: pooled counts, not a mean of the sets.
POOLED = "pooled"
_MCC = "mcc"


def question_kind(name: str, unit: str, *more: str) -> Kind:
    """The kind of a question benchmark: its rows are of one ``split``.

    Args:
        name: of the benchmark.
        unit: what is resampled.
        more: keys and counts that only this benchmark has.
    """
    return Kind(name, unit, ("split", PART, *more, *SIZES))


class ResultPlace(NamedTuple):
    """Where a group of answers belongs, as columns of the results, and its rows."""

    keys: Mapping[str, Any]
    rows: pd.DataFrame


def of_set(rows: pd.DataFrame, split: str, every: str = POOLED) -> pd.DataFrame:
    """The rows of a set; those of ``every`` are all of them."""
    return rows if split == every else rows[rows["split"] == split]


def places(
    rows: pd.DataFrame,
    splits: Sequence[str],
    unit: str,
    min_count: int,
    finer: Sequence[str] = (),
    every: str = POOLED,
) -> Iterator[ResultPlace]:
    """Whole sets, then every known level of shift, every cell of two, and every other part.

    Args:
        rows: with ``split``; levels and finer keys where known.
        splits: in order.
        unit: column that tells apart what is resampled.
        min_count: levels, cells and finer parts with fewer units are missing.
        finer: further columns by which each set is divided; name and value are the part.
        every: what all rows together are called, the last set; "" = they are skipped.
    """
    if not len(rows):
        return
    sets = [*splits, every] if every else splits
    parts = {split: part for split in sets if len(part := of_set(rows, split, every))}
    for split, part in parts.items():
        yield ResultPlace({"split": split}, part)
    known = [name for name in LEVELS if name in rows]
    levels = [[name] for name in known] + ([known] if len(known) == 2 else [])
    for split, part in parts.items():
        for names in [*levels, *([name] for name in finer if name in rows)]:
            for values, cell in part.groupby(names, sort=True):
                if cell[unit].nunique() < min_count:
                    continue
                keys = dict(zip(names, values, strict=True))
                if names not in levels:
                    shown = f"{values[0]:g}" if isinstance(values[0], int | float) else values[0]
                    keys = {PART: f"{names[0]} {shown}"}
                yield ResultPlace({"split": split, **keys}, cell)


def estimate_rows(
    place: Mapping[str, Any],
    results: Mapping[str, Estimate],
    n: int,
    asked: pd.DataFrame,
    units: Mapping[str, int] | None = None,
) -> list[Row]:
    """Rows of a results table.

    A share of 0 or 1 has the exact (Clopper-Pearson) interval of 0 or n successes in n units: the
    bootstrap has none there.

    Args:
        place: keys of the rows.
        results: estimates by metric.
        n: units that were resampled.
        asked: the questions behind them, answered or not; see
            :func:`ood_lab.lvlm.answers.judgements.judge`.
        units: how many of them a metric rests on, where these are fewer than ``n``.
    """
    common = {**place, "n": n, **sizes_of(asked)}
    exact = {m: exact_at_ends(m, e, (units or {}).get(m, n)) for m, e in results.items()}
    return [{**common, "metric": metric, **columns_of(e)} for metric, e in exact.items()]


def columns_of(results: Estimate) -> dict[str, float]:
    """``value, ci_low, ci_high`` of a row of a results table."""
    return {"value": results.value, "ci_low": results.low, "ci_high": results.high}


def paired_contrasts(
    counts: NDArray[Any],
    clusters: pd.Series,
    group: pd.Series,
    metrics: Metrics,
    names: Sequence[Any] | None = None,
    first: Any = None,
    *,
    resampling: Resampling,
) -> pd.DataFrame:
    """Contrasts between groups of rows, which are tested in pairs: they share their clusters.

    Args:
        counts: of every row, ``[N, C]``.
        clusters: what is resampled whole, by row.
        group: of every row.
        metrics: of summed counts.
        names: of the groups, in order; None = as they appear.
        first: compare this group with each other one only; None = all pairs.
        resampling: of the bootstrap.

    Returns:
        See :func:`~ood_lab.metrics.resampling.clustered_bootstrap.contrast`.
    """
    known = distinct(group) if names is None else names
    sums = cluster_sums(counts, clusters, positions(known, group), len(known))
    return contrast(known, clustered(sums, metrics, resampling=resampling), first)


def exact_at_ends(metric: str, results: Estimate, n: int) -> Estimate:
    """The estimate, at 0 and 1 with an exact interval.

    An MCC of -1 or 1 is that of ``2 p - 1``, p the accuracy, as in balanced questions.
    """
    value, mcc = results.value, metric == _MCC
    if n < 1 or math.isnan(results.low) or value not in ((-1.0, 1.0) if mcc else (0.0, 1.0)):
        return results
    low, high = clopper_pearson(n if value == 1 else 0, n)
    return Estimate(value, 2 * low - 1, 2 * high - 1) if mcc else Estimate(value, low, high)


def any_read(rows: pd.DataFrame) -> bool:
    """Whether any answer could be read.

    Where none was, to be wrong everywhere would say more of the parser than of the model.
    """
    return bool((rows["status"] == PARSED).any())
