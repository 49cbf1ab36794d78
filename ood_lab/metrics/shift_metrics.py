"""OOD sets with levels of shift: their cells, and DAD, correlation, sensitivity over levels.

Each function of a course reduces axis 0 (the levels) and keeps the others, so that the draws of a
bootstrap pass through unchanged: ``[levels] -> float``, ``[levels, draws] -> [draws]``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from ood_lab.metrics.record import metric_of
from ood_lab.metrics.resampling.group_intervals import mean_ends
from ood_lab.metrics.resampling.intervals import Ends
from ood_lab.schema.arrays import Floats, Ints
from ood_lab.schema.image_columns import AXES, LEVELS


@dataclass(frozen=True)
class CellScores:
    """Metrics of D detectors on G groups of OOD samples.

    Attributes:
        n_id: ID samples, or the photographs that they are made of.
        n_ood: samples of each group, or the photographs that they are made of, ``[G]``.
        headline_fpr: which FPR95 ``fpr95`` is, ``fpr95_id_positive`` or ``fpr95_ood_positive``.
        by_metric: values ``[D, G]``, NaN for a group with too few samples; draws ``[D, G, B]``, NaN
            likewise; 95% intervals ``[2, D, G]``, NaN likewise and where a group is too small.
    """

    n_id: int
    n_ood: list[int]
    headline_fpr: str
    by_metric: dict[str, tuple[Floats, Floats, Ends]] = field(default_factory=dict)

    def cell(self, metric: str, group: int) -> CellMean:
        """The numbers of one group."""
        values, draws, ends = self.by_metric[metric]
        return CellMean(values[:, group], draws[:, group], ends[:, :, group], self.n_ood[group])

    def mean(self, metric: str, members: Ints) -> CellMean:
        """The mean over those of some groups that have a value."""
        of_cells, draws_of_cells, ends_of_cells = self.by_metric[metric]
        values, draws = (_mean_of_present(of[:, members]) for of in (of_cells, draws_of_cells))
        present = members[~np.isnan(of_cells[:, members]).all(axis=0)]
        of_groups, counts = ends_of_cells[:, :, present], [self.n_ood[g] for g in present]
        rule = metric_of(self.headline_fpr if metric == "fpr95" else metric).rule
        ends = mean_ends(rule, values, draws, of_groups, self.n_id, counts)
        return CellMean(values, draws, ends, sum(self.n_ood[g] for g in members))


class CellMean(NamedTuple):
    """The mean of a metric of D detectors over groups of OOD samples.

    Attributes:
        values: ``[D]``.
        draws: ``[D, B]``.
        ends: its 95% intervals, ``[2, D]``.
        n_ood: samples of all groups together.
    """

    values: Floats
    draws: Floats
    ends: Ends
    n_ood: int


@dataclass(frozen=True)
class LevelCells:
    """The shift cells of one OOD set.

    Attributes:
        dataset: its name.
        cells: one row per cell with ``semantic_level`` and ``covariate_level`` (NaN for an axis the
            set does not have); the index is its group in ``measured``.
        measured: metrics of the cells of all sets.
    """

    dataset: str
    cells: pd.DataFrame
    measured: CellScores

    @property
    def axes(self) -> list[str]:
        """Axes on which the set has levels."""
        return [axis for axis in AXES if self.cells[f"{axis}_level"].notna().any()]

    def members(self, axis: str) -> dict[int, Ints]:
        """The cells of each level, ascending."""
        of_cell = self.cells[f"{axis}_level"].astype(int)
        return {n: of_cell.index[of_cell == n].to_numpy() for n in np.unique(of_cell).tolist()}


def split_by_level(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[pd.DataFrame]]:
    """Cells of a set and the rows in each; rows without a level on an axis of the set drop out."""
    levels = rows.reindex(columns=[*LEVELS]).astype("Float64").astype("float64")
    levels = levels.where(levels >= 0).reset_index(drop=True)
    axes = [column for column in LEVELS if levels[column].notna().any()]
    of_cells = list(levels.dropna(subset=axes).groupby([*LEVELS], dropna=False))
    cells = pd.DataFrame([cell for cell, _ in of_cells], columns=[*LEVELS], dtype="float64")
    return cells, [rows.iloc[of_cell.index] for _, of_cell in of_cells]


def _mean_of_present(values: Floats) -> Floats:
    """Mean over axis 1 without NaN; NaN where there is nothing."""
    present = ~np.isnan(values)
    count = present.sum(axis=1)
    total = np.where(present, values, 0).sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


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
