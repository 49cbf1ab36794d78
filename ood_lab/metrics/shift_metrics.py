"""OOD sets with levels of shift: their cells, and DAD, correlation, sensitivity over levels.

Each function of a course reduces axis 0 (the levels) and keeps the others, so that the draws of a
bootstrap pass through unchanged: ``[levels] -> float``, ``[levels, draws] -> [draws]``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from ood_lab.metrics.record import metric_of
from ood_lab.metrics.resampling.group_intervals import mean_ends
from ood_lab.metrics.resampling.intervals import Ends, ValueAndDraws
from ood_lab.schema.arrays import Floats, Ints, MetricValues
from ood_lab.schema.image_columns import AXES, LEVELS


@dataclass(frozen=True)
class CellScores:
    """Metrics of D detectors on G groups of OOD samples.

    Attributes:
        n_ood: samples of each group, or the photographs that they are made of, ``[G]``.
        headline_fpr: which FPR95 ``fpr95`` is, ``fpr95_id_positive`` or ``fpr95_ood_positive``.
        values: metric -> ``[D, G]``, NaN for a group with too few samples.
        draws: metric -> ``[D, G, B]``, NaN likewise.
        ends: metric -> the 95% intervals, ``[2, D, G]``, NaN likewise and where a group is too
            small for one.
    """

    n_ood: list[int]
    headline_fpr: str
    values: MetricValues
    draws: MetricValues
    ends: dict[str, Ends]

    def groups(self, start: int, end: int) -> CellScores:
        """The groups from ``start`` up to ``end``."""
        return CellScores(
            self.n_ood[start:end],
            self.headline_fpr,
            {metric: v[:, start:end] for metric, v in self.values.items()},
            {metric: v[:, start:end] for metric, v in self.draws.items()},
            {metric: v[:, :, start:end] for metric, v in self.ends.items()},
        )

    def mean_ends(
        self, metric: str, members: Ints, values: Floats, draws: Floats, n_id: int
    ) -> Ends:
        """The intervals of a mean over the ``members`` that have a value, ``[2, D]``."""
        members = members[~np.isnan(self.values[metric][:, members]).all(axis=0)]
        n_ood = [self.n_ood[member] for member in members]
        rule = metric_of(self.headline_fpr if metric == "fpr95" else metric).rule
        return mean_ends(rule, values, draws, self.ends[metric][:, :, members], n_id, n_ood)


@dataclass(frozen=True)
class LevelCells:
    """The shift cells of one OOD set.

    Attributes:
        dataset: its name.
        cells: one row per cell with ``semantic_level`` and ``covariate_level`` (NaN for an axis the
            set does not have).
        measured: its metrics, one group per cell.
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
        of_cell = self.cells[f"{axis}_level"].to_numpy()
        levels = sorted({int(level) for level in of_cell})
        return {level: np.flatnonzero(of_cell == level) for level in levels}

    def level_means(self, axis: str, metric: str) -> ValueAndDraws:
        """Mean over the present cells of each level: ``[D, L]`` and ``[D, L, B]``."""
        means = [self.mean_of(cells, metric) for cells in self.members(axis).values()]
        values = np.stack([mean[0] for mean in means], axis=1)
        return values, np.stack([mean[1] for mean in means], axis=1)

    def mean_of(self, cells: Ints, metric: str) -> ValueAndDraws:
        """Mean over the present ones of some cells: ``[D]`` and ``[D, B]``."""
        values, draws = self.measured.values[metric], self.measured.draws[metric]
        return _mean_of_present(values[:, cells]), _mean_of_present(draws[:, cells])


def split_by_level(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[pd.DataFrame]]:
    """Cells of a set and the rows in each; rows without a level on an axis of the set drop out."""
    columns = [*LEVELS]
    levels = rows.reindex(columns=columns).astype("Float64").astype("float64")
    levels = levels.where(levels >= 0)
    axes = [column for column in columns if levels[column].notna().any()]
    leveled = levels.reset_index(drop=True).dropna(subset=axes)
    cells = leveled[columns].drop_duplicates().sort_values(columns, ignore_index=True)
    cell_of_row = leveled.reset_index().merge(
        cells.reset_index(), on=columns, suffixes=("", "_cell")
    )
    rows_of_cell = cell_of_row.groupby("index_cell")["index"]
    return cells, [rows.iloc[members.to_numpy()] for _, members in rows_of_cell]


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
