"""OOD sets with graded shift: their cells, and means over a level."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ood_lab.axes import AXES
from ood_lab.metrics.ood import Floats


@dataclass(frozen=True)
class Measured:
    """Metrics of D detectors on G groups of OOD samples.

    Attributes:
        n_ood: samples of each group, ``[G]``.
        values: metric -> ``[D, G]``, NaN for a group with too few samples.
        draws: metric -> ``[D, G, B]``, NaN likewise.
    """

    n_ood: list[int]
    values: dict[str, Floats]
    draws: dict[str, Floats]

    def groups(self, start: int, end: int) -> Measured:
        """The groups from ``start`` up to ``end``."""
        return Measured(
            self.n_ood[start:end],
            {metric: v[:, start:end] for metric, v in self.values.items()},
            {metric: v[:, start:end] for metric, v in self.draws.items()},
        )


@dataclass(frozen=True)
class LevelCells:
    """The shift cells of one OOD set.

    Attributes:
        ood: name of the set.
        cells: one row per cell with ``semantic_level`` and ``covariate_level`` (NaN for an axis the
            set does not have).
        measured: its metrics, one group per cell.
    """

    ood: str
    cells: pd.DataFrame
    measured: Measured

    @property
    def axes(self) -> list[str]:
        """Axes on which the set has levels."""
        return [axis for axis in AXES if self.cells[f"{axis}_level"].notna().any()]

    def level_means(self, axis: str, metric: str) -> tuple[list[int], Floats, Floats]:
        """Mean over the present cells of each level: levels, ``[D, L]`` and ``[D, L, B]``."""
        of_cell = self.cells[f"{axis}_level"].to_numpy()
        levels = sorted({int(level) for level in of_cell})
        members = [np.flatnonzero(of_cell == level) for level in levels]
        values, draws = self.measured.values[metric], self.measured.draws[metric]
        return (
            levels,
            np.stack([_mean_of_present(values[:, m]) for m in members], axis=1),
            np.stack([_mean_of_present(draws[:, m]) for m in members], axis=1),
        )


def split_by_level(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[pd.DataFrame]]:
    """Cells of a set and the rows in each; rows without a level on an axis of the set drop out."""
    columns = [f"{axis}_level" for axis in AXES]
    levels = rows.reindex(columns=columns).astype("Float64").astype("float64")
    levels = levels.where(levels >= 0)
    axes = [column for column in columns if levels[column].notna().any()]
    known = levels.reset_index(drop=True).dropna(subset=axes)
    cells = known[columns].drop_duplicates().sort_values(columns, ignore_index=True)
    cell_of_row = known.reset_index().merge(cells.reset_index(), on=columns, suffixes=("", "_cell"))
    rows_of_cell = cell_of_row.groupby("index_cell")["index"]
    return cells, [rows.iloc[members.to_numpy()] for _, members in rows_of_cell]


def _mean_of_present(values: Floats) -> Floats:
    """Mean over axis 1 without NaN; NaN where there is nothing."""
    present = ~np.isnan(values)
    count = present.sum(axis=1)
    total = np.where(present, values, 0).sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
