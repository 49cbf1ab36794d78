"""Confidence intervals from bootstrap draws, and of proportions."""

from __future__ import annotations

import numpy as np
import scipy  # loads scipy.special when it is used
from numpy.typing import ArrayLike

from ood_lab.metrics.ood import Floats


def percentile_interval(draws: ArrayLike, n: int, level: float = 0.95) -> tuple[Floats, Floats]:
    """Expanded percentile interval along the last axis (arXiv 1411.5279, section 4).

    The quantiles ``a`` and ``1 - a`` with ``a = Phi(-sqrt(n / (n - 1)) t_{n-1})`` instead of
    ``a = (1 - level) / 2``: the plain interval is too narrow by that factor in small samples.
    NaN draws are left out; without any other the interval is NaN.

    Args:
        draws: ``[..., B]``.
        n: size of the smallest resampled group.
        level: nominal coverage.

    Returns:
        Lower and upper end, each ``[...]``.
    """
    values = np.asarray(draws, dtype=np.float64)
    missing = np.isnan(values)
    tail = scipy.special.ndtr(-_critical_value(n, level))
    if not missing.any():
        low, high = np.quantile(values, [tail, 1 - tail], axis=-1)
        return low, high
    nothing = missing.all(axis=-1)
    known = np.where(np.expand_dims(nothing, -1), 0.0, values)
    low, high = np.nanquantile(known, [tail, 1 - tail], axis=-1)
    return np.where(nothing, np.nan, low), np.where(nothing, np.nan, high)


def auroc_interval(
    value: ArrayLike, draws: ArrayLike, n: int, level: float = 0.95
) -> tuple[Floats, Floats]:
    """Wilson's interval with the sample size that explains the spread of the draws.

    ``n_eff = A (1 - A) / var(draws)``. Near 1, where detectors are compared, the distribution of
    the AUROC is skewed and the percentile interval ends too low on both sides. Draws that are all
    0 or all 1 (perfect separation) do not mean certainty: there ``n_eff = n``.

    Args:
        value: AUROC, ``[...]``.
        draws: ``[..., B]``.
        n: size of the smaller of the two samples.
        level: nominal coverage.

    Returns:
        Lower and upper end, each ``[...]``.
    """
    auroc = np.asarray(value, dtype=np.float64)
    variance = np.asarray(draws, dtype=np.float64).var(axis=-1)
    certain = (auroc <= 0) | (auroc >= 1)
    # Constant scores: an AUROC of exactly 1/2 in every draw.
    fixed = ~certain & (variance == 0)
    size = np.where(certain, n, auroc * (1 - auroc) / np.where(variance > 0, variance, 1))
    return _wilson(auroc, np.where(fixed, np.inf, size), _critical_value(n, level))


def wilson_interval(share: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a proportion such as an accuracy.

    ``(p + z^2 / 2n +- z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)``.

    Raises:
        ValueError: ``n <= 0`` or a share outside [0, 1].
    """
    if not 0 <= share <= 1 or n <= 0:
        raise ValueError(f"expected a share in [0, 1] of n > 0 samples, got {share} of {n}")
    low, high = _wilson(np.asarray(share), np.asarray(n), -scipy.special.ndtri((1 - level) / 2))
    return float(low), float(high)


def _wilson(share: Floats, n: Floats, z: float) -> tuple[Floats, Floats]:
    centre = share + z**2 / (2 * n)
    half = z * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    scale = 1 + z**2 / n
    # Rounding leaves 1e-17 where the end is exactly 0 or 1.
    return np.clip((centre - half) / scale, 0, 1), np.clip((centre + half) / scale, 0, 1)


def _critical_value(n: int, level: float) -> float:
    """Normal quantile, widened by what the bootstrap of n samples is too narrow."""
    tail = (1 - level) / 2
    if n < 2:
        return float(-scipy.special.ndtri(tail))
    return float(np.sqrt(n / (n - 1)) * -scipy.special.stdtrit(n - 1, tail))
