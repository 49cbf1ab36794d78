"""Shift of sets, levels of a pool and separability of sets: tables and sentences."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from ood_lab.common.english import listed
from ood_lab.report.rendering.metric_definitions import MISSING, percent
from ood_lab.report.rendering.prose import listing, spread_of
from ood_lab.report.rendering.table import (
    Cell,
    Column,
    Group,
    Head,
    NumberFormat,
    Table,
    count_cell,
    name_cell,
    names_column,
    number_cell,
    pivoted,
    table_of,
)
from ood_lab.schema.arrays import Ints
from ood_lab.schema.image_columns import AXES, Axis
from ood_lab.schema.results import ID_TEST, Names, Row, Tables

#: What D of an axis is called.
DEGREE = {"semantic": "D_sem", "covariate": "D_cov"}
ID_NAME = "ID test (no shift)"
#: Stands where the mean of a set does not differ significantly from that of the next one.
SAME = "≈"
SAME_NOTE = (
    f"{SAME} = mean not significantly different from that of the next set (bootstrap, Holm, 5%)."
)
BEYOND_NOTE = "beyond = share of images farther from ID than 95% of ID test (no shift: 5%)."


def summary_tables(summary: pd.DataFrame) -> list[Table]:
    """Shift of every set on both axes, the least shifted first.

    Args:
        summary: rows of :func:`ood_lab.shift.summarise_degrees` with a column ``axis``
            (``semantic`` or ``covariate``). The set ``test`` is ID: what no shift looks like.
    """
    return [_summary_table(rows_of(summary, axis), axis) for axis in AXES]


def _summary_table(rows: pd.DataFrame, axis: Axis) -> Table:
    marks = same_as_next(rows)
    same_notes = [SAME_NOTE] if any(marks) else []
    records = rows.to_dict("records")
    beyond = [
        (Cell("", -1),) * 2 if r["dataset"] == ID_TEST else _number(r, "frac_above_id_q95", percent)
        for r in records
    ]
    means = [_number(row, "mean", "{:.3f}".format) for row in records]
    same = [Cell(SAME, 1) if mark else Cell("", 0) for mark in marks]
    counts = [count_cell(row["n"]) for row in records]
    columns = zip(
        ("mean", "interval", SAME if same_notes else "", "beyond (%)", "interval", "n"),
        (*zip(*means, strict=True), same, *zip(*beyond, strict=True), counts),
        strict=True,
    )
    start = Column(Head("dataset", "ascending"), _set_cells(rows["dataset"]))
    rest = [Column(Head(text), cells) for text, cells in columns]
    title = f"{axis.capitalize()} shift: {DEGREE[axis]} with 95% intervals"
    return table_of(title, [start, *rest], notes=[*same_notes, BEYOND_NOTE])


def _set_cells(names: Iterable[str]) -> list[Cell]:
    """The names of sets in their order, ID test set off."""
    return [
        name_cell(ID_NAME if name == ID_TEST else name, place, quiet=name == ID_TEST)
        for place, name in enumerate(names)
    ]


def _number(row: Row, name: str, show: NumberFormat) -> tuple[Cell, Cell]:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    between = MISSING if np.isnan(low) else f"{show(low)}–{show(high)}"
    return Cell(show(row[name]), row[name]), Cell(between, low)


def rows_of(summary: pd.DataFrame, axis: str) -> pd.DataFrame:
    """The rows of one axis, the least shifted set first."""
    return summary[summary["axis"] == axis].sort_values("order", ignore_index=True)


def same_as_next(rows: pd.DataFrame) -> list[bool]:
    """For every row of one axis: its mean does not differ significantly from the next row's."""
    # The last row has no next one: its value is missing, and not False.
    return [value is not pd.NA and not value for value in rows["differs_from_next"]]


def cells_table(counts: Ints, min_count: int) -> Table:
    """Images of each cell of a division, with the sums of rows and columns.

    Args:
        counts: ``[covariate, semantic]``.
        min_count: cells with fewer images are N/A.
    """
    enough = counts >= max(min_count, 1)
    heads = [Head("covariate", note="level"), *(Head(f"{k}") for k in range(counts.shape[1]))]
    rows = []
    for level, (row_counts, row_enough) in enumerate(zip(counts, enough, strict=True)):
        cells = [
            Cell(f"{n:,}" if p else f"({n:,})", int(n))
            for n, p in zip(row_counts, row_enough, strict=True)
        ]
        rows.append([name_cell(level, level), *cells, count_cell(row_counts.sum())])
    sums = [count_cell(n) for n in (*counts.sum(axis=0), counts.sum())]
    rows.append([name_cell("sum", len(counts), quiet=True), *sums])
    note = (
        f"(n) = {MISSING}, fewer than {min_count} images: {(~enough).sum()} of {enough.size} cells"
    )
    caption = "Images by covariate (rows) and semantic level (columns)"
    return Table(caption, [*heads, Head("sum")], rows, notes=[note])


def separability_table(spaces: Tables, axes: str) -> Table:
    """Bhattacharyya distance of every set to ID train, backbones side by side.

    Args:
        spaces: backbone -> table of :func:`ood_lab.shift.separability`.
        axes: of :func:`ood_lab.shift.separability`.
    """
    distances = distances_of(spaces)
    columns = [Column(Head("dataset", "ascending"), _set_cells(distances.index))]
    for backbone, table in spaces.items():
        group = Group(backbone, f"{int(table['components'].iloc[0])} components")
        cells = [number_cell(float(d), show="{:.3f}".format) for d in distances[backbone]]
        columns.append(Column(Head("distance", group=group), cells))
    of = "its features" if axes == "id" else "the features of all datasets"
    note = (
        f"Bhattacharyya distance to ID train on the principal components of {of}; "
        "0 = not separable. It grows with the number of components."
    )
    return table_of("Separability of each set from ID", columns, notes=[note])


def agreement_table(correlations: pd.DataFrame) -> Table:
    """Rank correlations of degrees with known levels: a row a decomposition of a set.

    Args:
        correlations: see :func:`ood_lab.shift.level_agreement.agreement`.
    """
    cells = {
        ((r["dataset"], r["decomposition"]), Head(f"{r['degree']} ~ {r['level']}")): Cell(
            f"{r['spearman']:+.2f} ({r['spearman_cells']:+.2f})", r["spearman"]
        )
        for r in correlations.to_dict("records")
    }
    keys = list(dict.fromkeys(key for key, _ in cells))
    names = [names_column("dataset", (name for name, _ in keys))]
    names.append(names_column("split by", (way for _, way in keys)))
    caption = "Spearman of measured degrees with the known levels, images (cell means)"
    return pivoted(caption, names, keys, cells)


def distances_of(spaces: Tables) -> pd.DataFrame:
    """Distances, rows = sets (the nearest on average first), columns = backbones."""
    columns = {name: table.set_index("dataset")["bhattacharyya"] for name, table in spaces.items()}
    distances = pd.DataFrame(columns)
    return distances.loc[distances.mean(axis=1).sort_values(kind="stable").index]


#: Template of other sentences.
WORDS = "shift/words.j2"


def farthest_sentences(summary: pd.DataFrame, axes: Names) -> list[str]:
    """The farthest of several sets on average, see :func:`~.shift_tables.summary_tables`."""
    parts = []
    for axis in AXES:
        rows = rows_of(summary, axis).set_index("dataset")
        ood = rows.drop(index=ID_TEST)
        of_id, last = rows["mean"][ID_TEST], ood.iloc[-1]
        parts.append(f"for {last.name} {axes[axis]} ({last['mean']:.2f}; ID test: {of_id:.2f})")
    return [f"The mean distance is largest {listed(parts)}."] if len(ood) > 1 else []


def agreement_sentences(correlations: pd.DataFrame, axes: Names) -> list[str]:
    """How well distances by LAID follow the levels that sets bring along; see ``agreement``."""
    rows = correlations[
        correlations["spearman"].notna() & (correlations["decomposition"] == "laid")
    ]
    of = rows[rows["degree"] == "D_" + rows["level"]].set_index("level")["spearman"]
    parts = [f"{spread_of(of[[axis]], 2, 1)} {words}" for axis, words in axes.items() if axis in of]
    sets = listing(correlations["dataset"].unique())
    begins = f"The rank correlation of measured distances with the known levels of {sets} is"
    return [f"{begins} {listed(parts)}."] if parts else []
