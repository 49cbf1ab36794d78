"""The course of a metric along shift levels: DAD, correlation, sensitivity.

Each function reduces axis 0 (the levels) and keeps the others, so the draws of a bootstrap pass
through unchanged: ``[levels] -> float``, ``[levels, draws] -> [draws]``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ood_lab.schema.arrays import Floats


def dad(fpr_in_shift_order: ArrayLike, levels: ArrayLike | None = None) -> Any:
    """Number of pairs of OOD sets whose FPR falls as the declared shift grows; higher is better.

    ``sum_{j<k} 1[s_j > s_k]`` over the FPR95 ``s`` of n sets, ordered by shift, between 0 and
    ``n (n - 1) / 2``. Equal values and NaN sets count nothing.

    Args:
        fpr_in_shift_order: ``[n]`` or ``[n, ...]``.
        levels: ``[n]``, not falling: sets of one level are no pair, as near sets among each
            other; default 1..n.

    Raises:
        ValueError: fewer than two sets.
    """
    fpr = _levels_first(fpr_in_shift_order, "fpr_in_shift_order")
    level = np.arange(len(fpr)) if levels is None else np.asarray(levels)
    pairs = (fpr[j] > fpr[level > level[j]] for j in range(len(fpr)))
    return _scalar(sum(pair.sum(axis=0) for pair in pairs))


def shift_correlation(values_by_level: ArrayLike, levels: ArrayLike | None = None) -> Any:
    """Pearson correlation of a metric with the shift level (IS-OOD, equation 5).

    ``sum_i (i - mean i)(v_i - mean v) / sqrt(sum_i (i - mean i)^2 sum_i (v_i - mean v)^2)`` over
    the levels whose value is not NaN.

    Args:
        values_by_level: ``[L]`` or ``[L, draws]``, usually AUROC or FPR95 averaged over the other
            kind of shift.
        levels: ``[L]`` level numbers; default 1..L.

    Returns:
        A value in [-1, 1]; NaN for fewer than two levels or equal values.

    Raises:
        ValueError: fewer than two levels given, or ``levels`` of another length.
    """
    cross, level_square, value_square = _moments(values_by_level, levels)
    with np.errstate(invalid="ignore", divide="ignore"):
        return _scalar(np.clip(cross / np.sqrt(level_square * value_square), -1, 1))


def shift_sensitivity(values_by_level: ArrayLike, levels: ArrayLike | None = None) -> Any:
    """Absolute least-squares slope of a metric over the shift level (IS-OOD, equation 6).

    ``|sum_i (i - mean i)(v_i - mean v) / sum_i (i - mean i)^2|`` over the levels whose value is
    not NaN: by how much the metric moves a level, in its own unit. The sign is that of
    :func:`shift_correlation`. Arguments and errors as there; NaN for fewer than two levels.
    """
    cross, level_square, _ = _moments(values_by_level, levels)
    with np.errstate(invalid="ignore", divide="ignore"):
        return _scalar(np.abs(cross / level_square))


def _moments(values_by_level: ArrayLike, levels: ArrayLike | None) -> tuple[Floats, Floats, Floats]:
    """Centred sums of products ``(level * value, level^2, value^2)`` over the present levels."""
    values = _levels_first(values_by_level, "values_by_level")
    numbers = np.arange(1, len(values) + 1) if levels is None else np.asarray(levels)
    if numbers.shape != (len(values),):
        raise ValueError(f"levels: expected {len(values)} numbers, got shape {numbers.shape}")
    x = numbers.reshape((-1, *[1] * (values.ndim - 1))).astype(np.float64)
    present = ~np.isnan(values)
    count = np.maximum(present.sum(axis=0), 1)
    value = np.where(present, values, 0)
    dx = np.where(present, x - np.where(present, x, 0).sum(axis=0) / count, 0)
    dv = np.where(present, value - value.sum(axis=0) / count, 0)
    # Rounding must not turn equal values into a correlation of noise with the level.
    dv = np.where(np.abs(dv) <= 1e-12 * np.abs(value).max(axis=0), 0, dv)
    return (dx * dv).sum(axis=0), (dx * dx).sum(axis=0), (dv * dv).sum(axis=0)


def _levels_first(values: ArrayLike, name: str) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == 0 or len(array) < 2:
        raise ValueError(f"{name}: expected at least two levels, got shape {array.shape}")
    return array


def _scalar(result: Any) -> Any:
    """A Python number for one series of levels, the array for several."""
    array = np.asarray(result)
    return array.item() if array.ndim == 0 else array
