"""Is OOD another word for hard? Tests over models (appendix C of arXiv 2602.18094)."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from ood_lab.lvlm.statistics.statistic_tables import Draws
from ood_lab.metrics.answer_metrics import yes_no_metrics
from ood_lab.schema.arrays import Ints


class Spread(NamedTuple):
    """E1: do models differ more in how they suffer from hard than from OOD pairs?

    Attributes:
        f: ``Var(Delta_hard) / Var(Delta_ood)``, ddof 1.
        p: right tail of F(M - 1, M - 1).
    """

    f: float
    p: float


class Correlation(NamedTuple):
    """E2: do the models that suffer from hard pairs suffer from OOD pairs? p-values: two-sided."""

    pearson: float
    pearson_p: float
    spearman: float
    spearman_p: float


class Resampled(NamedTuple):
    """E3 and E4: what OOD pairs show, among subsets of the hard pairs of the same size.

    Attributes:
        variance: ``Var(Delta_ood)``.
        variance_p: left tail among ``Var(Delta_H(b))``.
        pearson: ``corr(Delta_ood, Delta_hard)``.
        pearson_p: left tail among ``corr(Delta_H(b), Delta_hard)``.
        spearman: the same by ranks.
        spearman_p: the same.
        lowest_pearson: least of the subsets: the baseline.
        lowest_spearman: the same by ranks.
        pairs: of a subset.
        drawn: ``variance``, ``pearson`` and ``spearman`` of the subsets.
    """

    variance: float
    variance_p: float
    pearson: float
    pearson_p: float
    spearman: float
    spearman_p: float
    lowest_pearson: float
    lowest_spearman: float
    pairs: int
    drawn: Draws


class Shared(NamedTuple):
    """E5: pairs that are both OOD and hard.

    Attributes:
        shared: their number.
        of_ood: as a share of the OOD pairs.
        of_hard: as a share of the hard ones.
    """

    shared: int
    of_ood: float
    of_hard: float


def spread_test(hard: ArrayLike, ood: ArrayLike) -> Spread:
    """E1 on degradations ``Delta_hard`` and ``Delta_ood`` of M models, ``[M]`` each.

    Raises:
        ValueError: OOD degradations that are all equal.
    """
    first, second = (np.asarray(item, np.float64) for item in (hard, ood))
    variance = second.var(ddof=1)
    if variance == 0:
        raise ValueError("all models degrade alike on OOD pairs: there is no ratio of variances")
    f = float(first.var(ddof=1) / variance)
    return Spread(f, float(stats.f.sf(f, len(first) - 1, len(first) - 1)))


def correlation_test(hard: ArrayLike, ood: ArrayLike) -> Correlation:
    """E2 on degradations of M models, ``[M]`` each."""
    first, second = (np.asarray(item, np.float64) for item in (hard, ood))
    pearson, spearman = stats.pearsonr(first, second), stats.spearmanr(first, second)
    return Correlation(*map(float, (*pearson, *spearman)))


def resampling_test(
    id_metric: ArrayLike,
    ood_metric: ArrayLike,
    hard_pairs: Ints,
    *,
    metric: str = "accuracy",
    pairs: int = 500,
    draws: int = 1000,
    seed: int = 0,
) -> Resampled:
    """E3 and E4: ``p = (1 + #{S_b <= s}) / (B + 1)`` over random subsets of the hard pairs.

    Args:
        id_metric: of M models on ID pairs, ``[M]``.
        ood_metric: on OOD pairs, ``[M]``.
        hard_pairs: TP, FP, TN, FN of every model and hard pair, ``[M, P, 4]``.
        metric: which of :func:`~ood_lab.metrics.answer_metrics.yes_no_metrics`.
        pairs: of a subset (500 pairs are 1,000 questions); all of them where there are fewer.
        draws: B.
        seed: of the subsets.
    """
    base = np.asarray(id_metric, np.float64)
    ood = base - np.asarray(ood_metric, np.float64)
    counts = np.asarray(hard_pairs, np.int64)
    hard = base - yes_no_metrics(counts.sum(axis=1))[metric]
    rng = np.random.default_rng(seed)
    size = min(pairs, counts.shape[1])
    subsets = (rng.choice(counts.shape[1], size, replace=False) for _ in range(draws))
    sample = np.stack([base - yes_no_metrics(counts[:, s].sum(1))[metric] for s in subsets])
    variances = sample.var(axis=1, ddof=1)
    pearsons = np.array([np.corrcoef(row, hard)[0, 1] for row in sample])
    ranks = np.array([stats.spearmanr(row, hard).statistic for row in sample])
    own = correlation_test(hard, ood)
    variance = float(ood.var(ddof=1))
    return Resampled(
        variance,
        left_tail_p(variance, variances),
        own.pearson,
        left_tail_p(own.pearson, pearsons),
        own.spearman,
        left_tail_p(own.spearman, ranks),
        float(pearsons.min()),
        float(ranks.min()),
        size,
        {"variance": variances, "pearson": pearsons, "spearman": ranks},
    )


def left_tail_p(observed: float, sample: ArrayLike) -> float:
    """``(1 + #{S_b <= s}) / (B + 1)``."""
    values = np.asarray(sample, np.float64)
    return float((1 + np.count_nonzero(values <= observed)) / (len(values) + 1))


def shared_pairs(ood: Collection[tuple[str, str]], hard: Collection[tuple[str, str]]) -> Shared:
    """E5 on pairs of image and category."""
    both = len(set(ood) & set(hard))
    return Shared(both, both / max(len(set(ood)), 1), both / max(len(set(hard)), 1))
