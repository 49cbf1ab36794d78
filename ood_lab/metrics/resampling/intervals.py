"""Confidence intervals from bootstrap draws, of proportions, and where the bootstrap fails.

A bootstrap knows no score beyond those it was given. It fails where a sample is small, and where
hardly an image is on the wrong side of the others; ``tests/metrics/resampling/test_coverage.py``
simulates where. There, intervals rest on order statistics and on proportions, or there is none.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy  # loads scipy.special when it is used
from numpy.typing import ArrayLike

from ood_lab.schema.arrays import Bools, Floats, Ints

#: From so many images in each group on, the bootstrap covers FPR95, AUPR and DAD.
FEWEST = 100
#: From so many images on, the lowest of them bounds the 5% quantile: ``1 - 0.95^n >= 0.975``.
FEWEST_FOR_THRESHOLD = 72
# The AUROC as a proportion: fewer images than this on the wrong side do not tell its variance.
_RARE = 5
# The largest n_eff there, per image of the smaller group. An AUROC of A on few OOD images has the
# variance A (1 - A) A / (1 + A) / m where scores are exponential (Hanley and McNeil 1982).
_MOST_EFFECTIVE = 3


#: Of a 95% interval, on each side.
_TAIL = (1 - 0.95) / 2
#: Lower and upper end of intervals, ``[2, ...]``.
Ends = Floats
#: A value of every detector, and its draws in one axis more.
ValueAndDraws = tuple[Floats, Floats]


class Estimate(NamedTuple):
    """A value, or the difference of two, with its 95% interval; NaN where there is none.

    ``n_id`` and ``n_ood`` count images, where a detector is measured.
    """

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    n_id: int = 0
    n_ood: int = 0

    @property
    def half_width(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2

    @property
    def has_interval(self) -> bool:
        """True when both ends of the interval are known."""
        return not (math.isnan(self.low) or math.isnan(self.high))


def percentile_interval(draws: ArrayLike, n: int) -> Ends:
    """Expanded percentile interval along the last axis (arXiv 1411.5279, section 4).

    The quantiles ``a`` and ``1 - a`` with ``a = Phi(-sqrt(n / (n - 1)) t_{n-1})`` instead of
    ``a = 0.025``: the plain interval is too narrow by that factor in small samples.
    NaN draws are skipped; without any other the interval is NaN.

    Args:
        draws: ``[..., B]``.
        n: size of the smallest resampled group.
    """
    values = np.asarray(draws, dtype=np.float64)
    if not values.shape[-1]:
        values = np.full((*values.shape[:-1], 1), np.nan)
    missing = np.isnan(values)
    tail = scipy.special.ndtr(-_critical_value(n))
    if not missing.any():
        return np.quantile(values, [tail, 1 - tail], axis=-1)
    nothing = missing.all(axis=-1)
    defined = np.where(np.expand_dims(nothing, -1), 0.0, values)
    return np.where(nothing, np.nan, np.nanquantile(defined, [tail, 1 - tail], axis=-1))


def auroc_interval(value: ArrayLike, draws: ArrayLike, n: int) -> Ends:
    """Wilson's interval with the sample size that explains the spread of the draws.

    ``n_eff = A (1 - A) / var(draws)``. Near 1, where detectors are compared, the distribution of
    the AUROC is skewed and the percentile interval ends too low on both sides. Draws that are all
    0 or all 1 (perfect separation) do not mean certainty: there ``n_eff = n``. Where fewer than 5
    images are on the wrong side, ``n min(A, 1 - A) < 5``, the draws spread too little, and
    ``n_eff`` is at most 3n.

    Args:
        value: AUROC, ``[...]``.
        draws: ``[..., B]``.
        n: size of the smaller of the two samples.

    Returns:
        ``[2, ...]``; NaN for ``n = 1``: one image has no spread.
    """
    auroc = np.asarray(value, dtype=np.float64)
    variance = np.asarray(draws, dtype=np.float64).var(axis=-1)
    certain = (auroc <= 0) | (auroc >= 1)
    # Constant scores: an AUROC of exactly 1/2 in every draw.
    fixed = ~certain & (variance == 0)
    size = np.where(certain, n, auroc * (1 - auroc) / np.where(variance > 0, variance, 1))
    size = np.where(is_rare(auroc, n), np.minimum(size, _MOST_EFFECTIVE * n), size)
    ends = _wilson(auroc, np.where(fixed, np.inf, size), _critical_value(n))
    return ends if n > 1 else np.full_like(ends, np.nan)


def is_rare(auroc: ArrayLike, n: int) -> Bools:
    """True where the draws of an AUROC of n images spread too little, ``n min(A, 1 - A) < 5``."""
    value = np.asarray(auroc, dtype=np.float64)
    return n * np.minimum(value, 1 - value) < _RARE


def exceedance_interval(threshold_of: ArrayLike, counted: ArrayLike) -> Ends:
    """Interval of ``P(x >= q)``, q the 5% quantile of another sample's distribution.

    FPR95 with OOD positive is that of ID scores ``x`` and the 5% quantile of OOD scores; with ID
    positive, that of negated OOD scores and the 5% quantile of negated ID scores. Of the m ordered
    scores y of the threshold, ``J ~ Binomial(m, 0.05)`` lie below q, so q is in
    ``[y_J, y_{J+1}]``, whatever the distribution; and given q, ``P(x >= q)`` is bounded as
    Clopper and Pearson do. The ends are the quantiles of the mixtures over J:

    ``low: sum_j P(J = j) Beta(k_{j+1}, n - k_{j+1} + 1)``,
    ``high: sum_j P(J = j) Beta(k_j + 1, n - k_j)``, with ``k_j = #(x >= y_j)``, ``y_0 = -inf``.

    With fewer than 72 scores y nothing bounds the 5% quantile from below, and the upper end is 1.

    Args:
        threshold_of: y ``[m, D]`` of D detectors.
        counted: x ``[n, D]``.

    Returns:
        ``[2, D]``; NaN where the ends are 0 and 1, which says nothing.
    """
    y, x = (np.sort(np.asarray(v, dtype=np.float64), axis=0) for v in (threshold_of, counted))
    (m, detectors), n = y.shape, len(x)
    weight = np.diff(scipy.special.bdtr(np.arange(m + 1), m, 0.05), prepend=0.0)
    likely = weight > 1e-12
    reached = np.zeros((detectors, m + 2), dtype=np.int64)
    reached[:, 0] = n
    for d in range(detectors):
        reached[d, 1:-1] = n - np.searchsorted(x[:, d], y[:, d], side="left")
    weight = weight[likely]
    low = _mixture_quantile(_TAIL, weight, reached[:, 1:][:, likely], n + 1)
    high = _mixture_quantile(1 - _TAIL, weight, reached[:, :-1][:, likely] + 1, n + 1)
    return np.where((low <= 0) & (high >= 1), np.nan, [low, high])


def _mixture_quantile(share: float, weight: Floats, a: Ints, total: int) -> Floats:
    """Quantile of mixtures of ``Beta(a, total - a)``, ``[J], [D, J] -> [D]``.

    With a = 0 all of a part is at 0, with a = total at 1.
    """
    at_zero, at_one = ((weight * (a == end)).sum(axis=1) for end in (0, total))
    # Compared with a slack, as the weights sum to 1 but for rounding.
    quantiles = np.where(at_zero >= share, 0.0, np.where(1 - at_one <= share + 1e-9, 1.0, np.nan))
    if not (sought := np.isnan(quantiles)).any():
        return quantiles
    a, at_zero = a[sought], at_zero[sought]
    # Many of a detector's parts have the same a.
    keys = np.arange(len(a))[:, None] * (total + 1) + a
    distinct, place = np.unique(keys, return_inverse=True)
    detector, first = np.divmod(distinct, total + 1)
    inner = (first > 0) & (first < total)
    detector, first, place = detector[inner], first[inner], place.reshape(a.shape)
    parts = np.zeros(len(distinct))
    low, high = np.zeros(len(a)), np.ones(len(a))
    for _ in range(40):  # halves [0, 1] down to 1e-12
        middle = (low + high) / 2
        parts[inner] = scipy.special.betainc(first, total - first, middle[detector])
        under = at_zero + (weight * parts[place]).sum(axis=1) < share
        low, high = np.where(under, middle, low), np.where(under, high, middle)
    quantiles[sought] = high
    return quantiles


def bootstrap_interval(draws: ArrayLike, n: int) -> Ends:
    """:func:`percentile_interval`, or NaN where the smallest group has fewer than 100 images."""
    ends = percentile_interval(draws, n)
    return ends if n >= FEWEST else np.full_like(ends, np.nan)


def wilson_interval(share: float, n: float) -> tuple[float, float]:
    """Wilson's score interval of a proportion such as an accuracy.

    ``(p + z^2 / 2n +- z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)``.

    Raises:
        ValueError: ``n <= 0`` or a share outside [0, 1].
    """
    if not 0 <= share <= 1 or n <= 0:
        raise ValueError(f"expected a share in [0, 1] of n > 0 samples, got {share} of {n}")
    low, high = _wilson(np.asarray(share), np.asarray(n), -scipy.special.ndtri(_TAIL))
    return float(low), float(high)


def clopper_pearson(k: int, n: int) -> tuple[float, float]:
    """Exact interval of a share: ``BetaInv(a; k, n - k + 1)`` and ``BetaInv(1 - a; k + 1, n - k)``.

    Args:
        k: successes.
        n: trials, at least 1.
    """
    low = 0.0 if k == 0 else float(scipy.special.betaincinv(k, n - k + 1, _TAIL))
    high = 1.0 if k == n else float(scipy.special.betaincinv(k + 1, n - k, 1 - _TAIL))
    return low, high


def bayes_interval(k: int, n: int) -> tuple[float, float]:
    """Equal-tailed interval under the prior Beta(1, 1): quantiles of ``Beta(k + 1, n - k + 1)``."""
    low, high = scipy.special.betaincinv(k + 1, n - k + 1, [_TAIL, 1 - _TAIL])
    return float(low), float(high)


def _wilson(share: Floats, n: Floats, z: float) -> Ends:
    centre = share + z**2 / (2 * n)
    half = z * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    scale = 1 + z**2 / n
    # Rounding leaves 1e-17 where the end is exactly 0 or 1.
    return np.clip([(centre - half) / scale, (centre + half) / scale], 0, 1)


def _critical_value(n: int) -> float:
    """Normal quantile, widened by as much as the bootstrap of n samples is too narrow."""
    if n < 2:
        return float(-scipy.special.ndtri(_TAIL))
    return float(np.sqrt(n / (n - 1)) * -scipy.special.stdtrit(n - 1, _TAIL))
