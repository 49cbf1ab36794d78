"""Class-conditional maximum mean discrepancy between two sets of labelled features.

``k((x, c), (x', c')) = exp(-||x - x'||^2 / 2 s^2) 1[c = c']``, so that
``MMD^2 = sum_c [mean_aa + mean_bb - 2 mean_ab]`` with sums within class c over n^2, m^2 and n m.
Kernels are kept class by class; the full Gram matrix never exists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist, pdist

from ood_lab.lvlm.statistics.statistic_tables import Draws
from ood_lab.schema.arrays import Bools, Floats, Ints

#: Distances of so many pairs at most make the median heuristic.
_MEDIAN_OF = 2000


class Equivalence(NamedTuple):
    """Whether two sets differ by no more than parts of one of them do.

    ``MMD^2`` cannot be negative, so the comparison is one-sided: the sets are equivalent where the
    upper end of the bootstrap interval stays below the threshold. Sets that differ by the threshold
    are called equivalent in 5% of cases at most. The threshold is as small as the noise of samples
    of this size, so that identical distributions are called equivalent in a third to a half of
    cases only; no valid test at this threshold finds more than about a half.

    The paper compares the permutation quantile with the threshold. Both describe the distribution
    under *no difference*, so its verdict is near to a coin's, whether the sets differ or not.

    Attributes:
        mmd2: of the two sets.
        threshold: the 95% quantile of ``MMD^2`` between random parts of the first set.
        sizes: of those parts.
        at_sizes: the mean ``MMD^2`` between subsets that large, which the interval is about.
        permutation: ``Q_0.95`` after shuffling which set a sample belongs to.
        low: lower end of the 90% bootstrap interval.
        high: upper end, the one-sided 95% bound.
        equivalent: ``high < threshold``.
        equivalent_published: ``permutation < threshold``, the paper's rule.
        drawn: ``parts`` of the first set, ``permuted`` sets, and ``resampled`` ones, shifted to the
            mean that the interval is about.
    """

    mmd2: float
    threshold: float
    sizes: tuple[int, int]
    at_sizes: float
    permutation: float
    low: float
    high: float
    equivalent: bool
    equivalent_published: bool
    drawn: Draws


class ClassMmd:
    """``MMD^2`` of weighted subsets of a pool, from kernels that are computed once.

    Args:
        features: ``[N, D]`` of the pool.
        classes: ``[N]``.
        bandwidth: s; see :func:`median_bandwidth`.
    """

    def __init__(self, features: NDArray, classes: NDArray, bandwidth: float) -> None:
        values = np.asarray(features, np.float64)
        self._kernels: list[tuple[Ints, Floats]] = []
        for name in np.unique(classes):
            rows = np.flatnonzero(classes == name)
            squares = cdist(values[rows], values[rows], "sqeuclidean")
            self._kernels.append((rows, np.exp(-squares / (2 * bandwidth**2))))

    def __call__(self, first: NDArray, second: NDArray) -> float:
        """``MMD^2`` between two subsets.

        Args:
            first: ``[N]``, how often each sample of the pool is in the first set.
            second: the same of the second set.
        """
        a, b = (np.asarray(counts, np.float64) for counts in (first, second))
        n, m = a.sum(), b.sum()
        within, beyond, between = self._sums(a, b)
        return float(within / (n * n) + beyond / (m * m) - 2 * between / (n * m))

    def expected(self, first: Bools, second: Bools, sizes: tuple[int, int]) -> float:
        """The mean ``MMD^2`` between random subsets of two sets, exactly.

        The V-statistic's bias depends on how many samples there are; this is what it would be with
        others.

        Args:
            first: ``[N]``, which samples of the pool are in the first set.
            second: the same of the second set.
            sizes: of the subsets.
        """
        a, b = (np.asarray(inside, np.float64) for inside in (first, second))
        *own, cross = self._sums(a, b)
        total = -2 * cross / (a.sum() * b.sum())
        for value, n, size in zip(own, (a.sum(), b.sum()), sizes, strict=True):
            # Each sample's kernel with itself is 1.
            between = (value - n) / (n * (n - 1)) if n > 1 else 0.0
            total += (1 + (size - 1) * between) / size
        return float(total)

    def _sums(self, a: Floats, b: Floats) -> tuple[float, float, float]:
        """Sums of the weighted kernels within the first set, within the second, between them."""
        parts = [(a[rows], b[rows], kernel) for rows, kernel in self._kernels]
        results = [(u @ kernel @ u, v @ kernel @ v, u @ kernel @ v) for u, v, kernel in parts]
        first, second, between = np.sum(results, axis=0)
        return float(first), float(second), float(between)


def median_bandwidth(features: NDArray, seed: int = 0) -> float:
    """The median distance between two samples, of at most 2,000 of them.

    Raises:
        ValueError: fewer than two samples, or all of them are equal.
    """
    values = np.asarray(features, np.float64)
    if len(values) > _MEDIAN_OF:
        rows = np.random.default_rng(seed).choice(len(values), _MEDIAN_OF, replace=False)
        values = values[rows]
    distances = pdist(values)
    if not len(distances) or np.median(distances) == 0:
        raise ValueError("no bandwidth: fewer than two samples that differ")
    return float(np.median(distances))


def equivalence(
    train: NDArray,
    train_classes: NDArray,
    val: NDArray,
    val_classes: NDArray,
    *,
    draws: int = 500,
    seed: int = 0,
) -> Equivalence:
    """Whether val differs from train by no more than parts of train differ from each other.

    The bandwidth is the median distance within train, the same for all splits. A resample of the
    samples differs from another by their sampling once more, so the bootstrap's distribution is
    shifted to have its mean at the estimate. The estimate and the permutations are those of sets as
    large as the parts of train, ``(n - b, b)`` with ``b = min(m, n // 2)``, because the bias of the
    V-statistic, which is of the order of 1/n + 1/m, depends on the sizes.

    Args:
        train: features ``[n, D]``.
        train_classes: ``[n]``.
        val: features ``[m, D]``.
        val_classes: ``[m]``.
        draws: random splits, permutations and bootstrap resamples.
        seed: of all of them.
    """
    rng = np.random.default_rng(seed)
    n, m = len(train), len(val)
    bandwidth = median_bandwidth(train, seed)
    pool = np.concatenate([train, val])
    statistic = ClassMmd(pool, np.concatenate([train_classes, val_classes]), bandwidth)
    inside = np.arange(n + m) < n
    part = min(m, n // 2)
    sizes = (n - part, part)

    def drawn_by(two_sets: Callable[[], Sequence[Ints]]) -> Floats:
        """The statistic of ``draws`` pairs of sets, each the rows of the pool that it has."""
        pairs = (two_sets() for _ in range(draws))
        counts = ([np.bincount(rows, minlength=n + m) for rows in pair] for pair in pairs)
        return np.array([statistic(first, second) for first, second in counts])

    parts = drawn_by(lambda: np.split(rng.permutation(n), [part])[::-1])
    permuted = drawn_by(lambda: np.split(rng.permutation(n + m), np.cumsum(sizes))[:2])
    sample = drawn_by(lambda: (rng.integers(n, size=n), n + rng.integers(m, size=m)))
    at_sizes = statistic.expected(inside, ~inside, sizes)
    low, high = map(float, np.quantile(sample, [0.05, 0.95]) - sample.mean() + at_sizes)
    threshold, permutation = (float(np.quantile(item, 0.95)) for item in (parts, permuted))
    return Equivalence(
        mmd2=statistic(inside, ~inside),
        threshold=threshold,
        sizes=sizes,
        at_sizes=at_sizes,
        permutation=permutation,
        low=low,
        high=high,
        equivalent=high < threshold,
        equivalent_published=permutation < threshold,
        drawn={
            "parts": parts,
            "permuted": permuted,
            "resampled": sample - sample.mean() + at_sizes,
        },
    )
