"""Shift of sets, levels of a pool and separability of sets as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.text import Text

from ood_lab.axes import AXES, Axis
from ood_lab.report.columns import Column, break_name, build, numbers, pack
from ood_lab.report.protocol import MISSING
from ood_lab.shift import present_cells

#: What D of an axis is called.
DEGREE = {"semantic": "D_sem", "covariate": "D_cov"}
#: The ID set that was measured like the OOD sets.
ID_TEST = "test"
ID_NAME = "ID test (no shift)"
#: Stands where the mean of a set does not differ significantly from that of the next one.
SAME = "≈"
SAME_NOTE = (
    f"{SAME} = mean not significantly different from that of the next set (bootstrap, Holm, 5%)."
)


@dataclass(frozen=True)
class PackedTable:
    """A rich renderable: one table, or several where the terminal is too narrow for all columns."""

    columns: Sequence[Column]
    title: str
    notes: Sequence[str] = ()

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """The parts, then the notes."""
        for part in pack(self.columns, options.max_width):
            yield build(part, self.title)
        if self.notes:
            yield Text("\n".join(self.notes), "dim")


def summary_table(summary: pd.DataFrame) -> RenderableType:
    """Shift of every set on both axes, the least shifted first.

    Args:
        summary: rows of :func:`ood_lab.shift.summarise_degrees` with a column ``axis``
            (``semantic`` or ``covariate``). The set ``test`` is ID: what no shift looks like.
    """
    parts: list[RenderableType] = []
    for axis in AXES:
        rows = rows_of(summary, axis)
        title = f"{axis.capitalize()} shift: {DEGREE[axis]} with 95% intervals"
        parts += [Text(), PackedTable(_summary_columns(rows), title)]
    return Group(*parts, Text(SAME_NOTE, "dim"))


def rows_of(summary: pd.DataFrame, axis: Axis) -> pd.DataFrame:
    """The rows of one axis, the least shifted set first."""
    return summary[summary["axis"] == axis].sort_values("order", ignore_index=True)


def same_as_next(rows: pd.DataFrame) -> list[bool]:
    """For every row of one axis: its mean does not differ significantly from the next row's."""
    # The last row has no next one: its value is missing, and not False.
    return [value is not pd.NA and not value for value in rows["differs_from_next"]]


def _summary_columns(rows: pd.DataFrame) -> list[Column]:
    names = [Text(ID_NAME, "italic") if s == ID_TEST else Text(str(s)) for s in rows["set"]]
    columns = [Column(("set",), names)]
    for number in ("mean", "median"):
        columns.append(Column((number,), numbers([f"{v:.3f}" for v in rows[number]])))
        if number == "mean":
            marks = [Text(SAME if same else " ") for same in same_as_next(rows)]
            columns.append(Column(("",), marks))
        ends = zip(rows[f"{number}_low"], rows[f"{number}_high"], strict=True)
        columns.append(Column(("interval",), numbers([f"{a:.3f} to {b:.3f}" for a, b in ends])))
    return [*columns, Column(("n",), numbers([f"{n:,}" for n in rows["n"]]))]


def cells_table(counts: NDArray[np.int64], min_count: int) -> RenderableType:
    """Images of each cell of a division, with the sums of rows and columns.

    Args:
        counts: ``[covariate, semantic]``.
        min_count: cells with fewer images are N/A.
    """
    enough = present_cells(counts, min_count)
    names = [*map(str, range(len(counts))), "sum"]
    columns = [Column(("covariate", "level"), [Text(name) for name in names])]
    for level, (column, present) in enumerate(zip(counts.T, enough.T, strict=True)):
        columns.append(Column((f"{level} ",), _cells(column, present)))
    columns.append(Column(("sum ",), _cells(counts.sum(axis=1), np.full(len(counts), True))))
    note = (
        f"(n) = {MISSING}, fewer than {min_count} images: {(~enough).sum()} of {enough.size} cells"
    )
    return PackedTable(columns, "Images by covariate (rows) and semantic level (columns)", [note])


def _cells(column: NDArray[np.int64], present: NDArray[np.bool_]) -> list[Text]:
    """Counts of one column and their sum; N/A ones in brackets."""
    shown = [f"{n:,} " if p else f"({n:,})" for n, p in zip(column, present, strict=True)]
    cells = numbers([*shown, f"{column.sum():,} "])
    for cell, enough in zip(cells, present, strict=False):
        if not enough:
            cell.stylize("dim")
    cells[-1].stylize("bold")
    return cells


def separability_table(found: Mapping[str, pd.DataFrame], id_split: str) -> RenderableType:
    """Bhattacharyya distance of every set to ID, backbones side by side.

    Args:
        found: backbone -> table of :func:`ood_lab.shift.separability`.
        id_split: the ID set that distances are measured to.
    """
    distances = distances_of(found)
    names = [Text(ID_NAME, "italic") if s == ID_TEST else Text(s) for s in distances.index]
    columns = [Column(("set",), names)]
    for backbone, table in found.items():
        values = [f"{value:.3f}" for value in distances[backbone]]
        kept = int(table["components"].iloc[0])
        header = (*break_name(backbone, 16), f"{kept} components")
        columns.append(Column(header, numbers(values)))
    notes = [
        f"Bhattacharyya distance to ID {id_split} on the principal components of its features; "
        "0 = not separable. It grows with the number of components."
    ]
    return PackedTable(columns, "Separability of each set from ID", notes)


def distances_of(found: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Distances, rows = sets (the nearest on average first), columns = backbones."""
    columns = {name: table.set_index("set")["bhattacharyya"] for name, table in found.items()}
    distances = pd.DataFrame(columns)
    return distances.loc[distances.mean(axis=1).sort_values(kind="stable").index]
