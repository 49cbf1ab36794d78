"""Metrics of counts with intervals from resampling whole clusters, and contrasts between groups.

What belongs together (the two questions of a pair, all answers on an image) is drawn together.
A metric is a function of summed counts; it never sees a single answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ood_lab.common.random_streams import Resampling
from ood_lab.metrics.resampling.intervals import Estimate, percentile_interval
from ood_lab.metrics.resampling.significance import bootstrap_p_values, holm
from ood_lab.schema.arrays import Floats, Ints, MetricValues

#: Counts ``[..., C]`` of any shape → metrics ``[...]`` by name.
Metrics = Callable[[NDArray[Any]], MetricValues]


@dataclass(frozen=True, eq=False)
class Clustered:
    """Metrics and their draws, from the same clusters.

    Attributes:
        values: by metric, ``[...]``, the shape of what was counted (groups that share the draws).
        draws: by metric, ``[..., B]``.
        n: number K of clusters.
    """

    values: MetricValues
    draws: MetricValues
    n: int

    def estimates(self) -> dict[str, Estimate]:
        """Each metric with its percentile interval. Only where nothing but clusters was counted."""
        estimates = {}
        for name, value in self.values.items():
            low, high = percentile_interval(self.draws[name], self.n)
            estimates[name] = Estimate(float(value), float(low), float(high))
        return estimates


def clustered(
    counts: ArrayLike,
    metrics: Metrics,
    by: ArrayLike | None = None,
    *,
    resampling: Resampling,
) -> Clustered:
    """Metrics of all counts together, and of B resamples of K whole clusters.

    Args:
        counts: ``[N, ..., C]``; axes between are groups that share the draws, such as models.
        metrics: of summed counts.
        by: ``[N]``, the cluster of every row; None = every row is one.
        resampling: B and the seed.
    """
    rows = np.asarray(counts)
    sums = rows if by is None else cluster_sums(rows, by)
    values = metrics(sums.sum(axis=0))
    if not len(sums):
        nothing = {name: np.full(np.shape(value), np.nan) for name, value in values.items()}
        return Clustered(nothing, {k: v[..., None] for k, v in nothing.items()}, 0)
    rng = np.random.default_rng(resampling.seed)
    flat = resampled_sums(sums.reshape(len(sums), -1), resampling.draws, rng)
    of_draws = metrics(flat.reshape((len(flat), *sums.shape[1:])))
    return Clustered(values, {k: np.moveaxis(v, 0, -1) for k, v in of_draws.items()}, len(sums))


def clustered_mean(
    values: ArrayLike, by: ArrayLike | None = None, *, resampling: Resampling
) -> Clustered:
    """:func:`clustered` of the mean of ``values [N]``, as metric ``mean``."""
    return clustered(with_ones(values), partial(shares, ["mean"]), by, resampling=resampling)


def with_ones(values: ArrayLike) -> NDArray[Any]:
    """Values and how many each is, ``[N, 2]``, what :func:`shares` divides; truths are integers."""
    return np.column_stack([values, np.ones(len(np.asarray(values)), np.int64)])


def cluster_sums(
    counts: ArrayLike, by: ArrayLike, group: ArrayLike | None = None, groups: int = 1
) -> NDArray[Any]:
    """Sums over the rows of each cluster, ``[K, C]``, or ``[K, M, C]`` where there are groups.

    Args:
        counts: ``[N, C]``, or ``[N, ..., C]`` without groups.
        by: ``[N]``, the cluster of every row, of any type; clusters keep the order they appear in.
        group: ``[N]``, number of its group, 0 to M - 1.
        groups: M.
    """
    rows = np.asarray(counts)
    codes, names = pd.factorize(np.asarray(by))
    shape = (len(names),) if group is None else (len(names), groups)
    sums = np.zeros((*shape, *rows.shape[1:]), rows.dtype)
    np.add.at(sums, codes if group is None else (codes, np.asarray(group)), rows)
    return sums


def contrast(names: Sequence[Any], measured: Clustered, first: Any = None) -> pd.DataFrame:
    """The differences between M groups that share their clusters.

    The p-values are two-sided, a normal approximation with the bootstrap's standard error, see
    :func:`~ood_lab.metrics.resampling.significance.bootstrap_p_values`, and Holm-corrected over the
    pairs of a metric. The tails are not known from B draws, so that none is below ``1 / (B + 1)``
    before the correction.

    Args:
        names: of the groups.
        measured: values ``[M]`` and draws ``[M, B]``.
        first: compare this group with each other one only; None = all pairs.

    Returns:
        ``a, b, metric, value_a, value_b, difference, ci_low, ci_high, p_value, p_holm, n``.
    """
    pairs = [(a, b) for a, b in combinations(range(len(names)), 2) if first in (None, names[a])]
    rows = []
    for metric, value in measured.values.items():
        draws = measured.draws[metric]
        p_values, least = bootstrap_p_values(value, draws), 1 / (draws.shape[1] + 1)
        # NaN, where there is no test, stays NaN.
        raw = [float(np.maximum(p_values[a, b], least)) for a, b in pairs]
        for (a, b), p, adjusted in zip(pairs, raw, holm(raw).tolist(), strict=True):
            low, high = percentile_interval(draws[a] - draws[b], measured.n)
            rows.append(
                {
                    "a": names[a],
                    "b": names[b],
                    "metric": metric,
                    "value_a": float(value[a]),
                    "value_b": float(value[b]),
                    "difference": float(value[a] - value[b]),
                    "ci_low": float(low),
                    "ci_high": float(high),
                    "p_value": p,
                    "p_holm": adjusted,
                    "n": measured.n,
                }
            )
    return pd.DataFrame(rows)


def resampled_sums(rows: NDArray[Any], draws: int, rng: np.random.Generator) -> NDArray[Any]:
    """Sums over ``len(rows)`` rows that are drawn with replacement, ``[draws, M]``.

    Equal rows of integers need not be distinguished: how often each kind is drawn is
    multinomial, which gives the very distribution of the bootstrap at a cost that does not grow
    with the rows.

    Args:
        rows: ``[K, M]``.
        draws: number of resamples.
        rng: of the draws.
    """
    integral = np.issubdtype(rows.dtype, np.integer)
    kinds, sizes = _kinds(rows) if integral else (rows, np.ones(len(rows), np.int64))
    return rng.multinomial(len(rows), sizes / len(rows), size=draws) @ kinds


def share(part: Floats, total: Floats, otherwise: float = 0.0) -> Floats:
    """``part / whole``, and ``otherwise`` where the denominator is 0."""
    quotient = np.full(np.broadcast(part, total).shape, otherwise)
    return np.divide(part, total, out=quotient, where=total > 0)


def shares(names: Sequence[str], counts: NDArray[Any]) -> MetricValues:
    """Each count but the last over the last, ``[..., C]``, by name."""
    total = counts[..., -1]
    return {n: share(counts[..., place], total, np.nan) for place, n in enumerate(names)}


def _kinds(rows: Ints) -> tuple[Ints, Ints]:
    """Distinct rows and how often each occurs; rows as digits of one number sort much faster."""
    low = rows.min(axis=0)
    spans = [int(span) for span in rows.max(axis=0) - low + 1]
    if math.prod(spans) >= 2**62:
        return np.unique(rows, axis=0, return_counts=True)
    steps = np.array([math.prod(spans[:column]) for column in range(len(spans))], np.int64)
    _, first, sizes = np.unique((rows - low) @ steps, return_index=True, return_counts=True)
    return rows[first], sizes
