"""Tests of one detector against another on the same samples: DeLong, paired bootstrap, Holm."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import scipy  # loads scipy.special when it is used
from numpy.typing import ArrayLike

from ood_lab.metrics.resampling.stratified_bootstrap import score_matrix
from ood_lab.schema.arrays import Bools, Floats


def delong(
    id_scores: ArrayLike, ood_scores: ArrayLike, made_of: Sequence[ArrayLike] | None = None
) -> tuple[Floats, Floats]:
    """AUROC of D detectors on the same samples and their covariance.

    With the placements ``V_j = P(ID < ood_j)`` and ``W_i = P(OOD > id_i)``, ties counting half,
    the covariance is ``cov(V) / m + cov(W) / n`` (DeLong et al. 1988), computed from ranks in
    O((n + m) log n) (Sun and Xu 2014). Where samples belong together, it is
    ``K / (K - 1) sum_k phi_k phi_k'`` over the K photographs, whose samples add up:
    ``phi_k = sum_{j in k} (V_j - A) / m + sum_{i in k} (W_i - A) / n`` (after Obuchowski 1997).

    Args:
        id_scores: ``[n]`` or ``[n, D]``, higher = more OOD.
        ood_scores: ``[m]`` or ``[m, D]``.
        made_of: the photograph of each ID and of each OOD sample, where some are made of one.

    Returns:
        ``auroc [D]`` and ``covariance [D, D]``.

    Raises:
        ValueError: fewer than two samples on one side, NaN, or detectors that do not match.
    """
    id_matrix = score_matrix(id_scores, "id_scores")
    ood_matrix = score_matrix(ood_scores, "ood_scores")
    if id_matrix.shape[1] != ood_matrix.shape[1]:
        raise ValueError(
            f"id_scores have {id_matrix.shape[1]} detectors, ood_scores {ood_matrix.shape[1]}"
        )
    if min(len(id_matrix), len(ood_matrix)) < 2:
        raise ValueError(
            "DeLong's variance needs two samples on each side, "
            f"got {len(id_matrix)} ID and {len(ood_matrix)} OOD"
        )
    over_id, of_ood = placements(id_matrix, ood_matrix)
    if made_of is not None:
        names = np.concatenate([np.asarray(of, object) for of in made_of])
        shares = np.hstack([above_mean(over_id), above_mean(of_ood)])
        return of_ood.mean(axis=1), summed_variance(shares, names)
    covariance = np.atleast_2d(np.cov(of_ood)) / len(ood_matrix)
    covariance = covariance + np.atleast_2d(np.cov(over_id)) / len(id_matrix)
    return of_ood.mean(axis=1), covariance


def placements(id_matrix: Floats, ood_matrix: Floats) -> tuple[Floats, Floats]:
    """``P(OOD > id_i)`` and ``P(ID < ood_j)`` of D detectors, ties counting half.

    Args:
        id_matrix: ``[n, D]``.
        ood_matrix: ``[m, D]``.

    Returns:
        ``[D, n]`` and ``[D, m]``.
    """
    pairs = list(zip(id_matrix.T, ood_matrix.T, strict=True))
    over_id = 1 - np.stack([_share_below(o, i) for i, o in pairs])
    return over_id, np.stack([_share_below(i, o) for i, o in pairs])


def above_mean(placed: Floats) -> Floats:
    """What the placement of each of N samples adds to the AUROC above its mean, ``[D, N]``."""
    return (placed - placed.mean(axis=1, keepdims=True)) / placed.shape[1]


def summed_variance(shares: Floats, made_of: ArrayLike) -> Floats:
    """Covariance of D sums over samples ``[D, N]``, of which those of one photograph go together.

    ``K / (K - 1) sum_k phi_k phi_k'`` with the sums ``phi_k`` over the K photographs.
    """
    codes, names = pd.factorize(np.asarray(made_of, object))
    sums = np.zeros((len(names), len(shares)))
    np.add.at(sums, codes, shares.T)
    return sums.T @ sums * len(names) / (len(names) - 1)


def delong_p_values(auroc: Floats, covariance: Floats) -> Floats:
    """Two-sided p-value of equal AUROC for every pair of detectors, ``[D], [D, D] -> [D, D]``."""
    variance = np.diag(covariance)
    difference = auroc[:, None] - auroc[None]
    spread = np.sqrt(np.maximum(variance[:, None] + variance[None] - 2 * covariance, 0))
    return _normal_p(difference, spread)


def bootstrap_p_values(values: ArrayLike, draws: ArrayLike) -> Floats:
    """Two-sided p-value of equal values for every pair of detectors, from paired draws.

    ``2 Phi(-|v_a - v_b| / sd(draws_a - draws_b))``. Counting draws beyond zero instead could not
    fall below 2 / B, too coarse once Holm multiplies it by a hundred pairs.

    Args:
        values: ``[D]``.
        draws: ``[D, B]``, all detectors resampled together; NaN draws are skipped.

    Returns:
        ``[D, D]``, symmetric, 1 on the diagonal, NaN where a value is.
    """
    return delong_p_values(np.asarray(values, np.float64), draws_covariance(draws))


def draws_covariance(draws: ArrayLike) -> Floats:
    """Covariance ``[D, D]`` of paired draws ``[D, B]`` without NaN; NaN of fewer than two."""
    resampled = np.asarray(draws, np.float64)
    resampled = resampled[:, ~np.isnan(resampled).any(axis=0)]
    if resampled.shape[1] < 2:
        return np.full([len(resampled)] * 2, np.nan)
    return np.atleast_2d(np.cov(resampled))


def holm(p_values: ArrayLike) -> Floats:
    """Holm's step-down correction: adjusted p-values in the given order; NaN stays NaN.

    ``p~_(i) = max_{j<=i} min(1, (k - j + 1) p_(j))`` over the k tests that are not NaN.
    """
    p = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(p.shape, np.nan)
    order = np.argsort(p)[: int((~np.isnan(p)).sum())]
    factors = len(order) - np.arange(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1)
    return adjusted


def best_group(values: ArrayLike, p_values: ArrayLike, *, higher_is_better: bool) -> Bools:
    """The best detector and all that are not significantly worse at 5%, ``[D] bool``.

    Left out are those whose test against the best is not possible (NaN), and those that are behind
    one that is significantly worse: where a test has little power, a value far from the best would
    else be in the group, and a nearer one not.

    Args:
        values: ``[D]``; NaN is never in the group.
        p_values: ``[D, D]`` unadjusted; the tests against the best are Holm-corrected here.
        higher_is_better: False for FPR95.
    """
    value = np.asarray(values, dtype=np.float64) * (1 if higher_is_better else -1)
    if np.isnan(value).all():
        return np.zeros(len(value), dtype=bool)
    best = int(np.nanargmax(value))
    p_to_best = np.array(p_values, dtype=np.float64)[best]
    p_to_best[best] = np.nan  # not a test
    worse = (holm(p_to_best) < 0.05) | np.isnan(p_to_best)
    worse[best] = False
    group = ~worse & (value > np.nanmax(value[worse], initial=-np.inf))
    group[best] = True
    return group


def _share_below(ascending_of: Floats, queries: Floats) -> Floats:
    """Share of the first array below each query, ties counting half."""
    ordered = np.sort(ascending_of)
    below = np.searchsorted(ordered, queries, side="left")
    return (below + np.searchsorted(ordered, queries, side="right")) / (2 * ordered.size)


def _normal_p(difference: Floats, spread: Floats) -> Floats:
    """Two-sided normal p-value; no spread means equal (p = 1) or surely different (p = 0)."""
    # Detectors that rank alike differ by rounding only.
    same = np.abs(difference) <= 1e-12
    z = np.abs(difference) / np.where(spread > 1e-12, spread, 1e-12)
    return np.where(same, 1.0, 2 * scipy.special.ndtr(-z))
