"""Metrics of answers over semantic and covariate levels of shift."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from ood_lab.axes import LEVELS
from ood_lab.report.figures.style import label_outer, new_figure, panels, style, text_on
from ood_lab.report.protocol import MISSING

_COLOURS = matplotlib.colormaps["cividis"]
_EMPTY = "#EFEFEF"
_RANGE = Normalize(0, 100)
_Cells = Sequence[Sequence[Mapping[Any, Any] | None]]


def level_lines(
    rows: pd.DataFrame, metrics: Mapping[str, str], splits: Mapping[str, str], footer: str
) -> Figure | None:
    """One panel per metric and axis, a line per split with its 95% band; None without two levels.

    Args:
        rows: ``split, semantic_level, covariate_level, metric, value, ci_low, ci_high``.
        metrics: key in the rows → label.
        splits: key in the rows → name of its line.
        footer: what stands below.
    """
    parts = {}
    for axis, other in (LEVELS, LEVELS[::-1]):
        part = rows[rows[axis].notna() & rows[other].isna()]
        if part[axis].nunique() > 1:
            parts[axis] = part
    if not parts:
        return None
    figure = new_figure(1.9 * len(metrics) + 0.7, footer, width=3.3 * len(parts) + 0.6)
    grid = figure.subplots(len(metrics), len(parts), squeeze=False, sharex="col", sharey="row")
    for row, (metric, label) in enumerate(metrics.items()):
        for column, (axis, part) in enumerate(parts.items()):
            _lines(grid[row, column], part[part["metric"] == metric], axis, splits)
        grid[row, 0].set_ylabel(f"{label} (%)")
    for column, axis in enumerate(parts):
        grid[-1, column].set_xlabel(axis.replace("_", " "))
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
    return figure


def level_cells(
    rows: pd.DataFrame, metrics: Mapping[str, str], split: str, footer: str
) -> Figure | None:
    """The grid of semantic × covariate levels, a panel per metric; None without two of each.

    Args:
        rows: see :func:`level_lines`, with ``n_pairs``.
        metrics: key in the rows → title.
        split: the one to show.
        footer: what stands below.
    """
    cells = rows[(rows["split"] == split) & rows[list(LEVELS)].notna().all(axis=1)]
    if min((cells[name].nunique() for name in LEVELS), default=0) < 2:
        return None
    semantic, covariate = (sorted(cells[name].unique()) for name in LEVELS)
    found = {
        (row["metric"], *(row[name] for name in LEVELS)): row for row in cells.to_dict("records")
    }
    figure, grid = panels(
        len(metrics), 3, 0.29 * len(semantic) + 0.35, footer, 0.5, sharex=True, sharey=True
    )
    for axes, (metric, title) in zip(grid, metrics.items(), strict=True):
        axes.set_title(f"{title} (%)", fontsize=7, pad=2)
        table: _Cells = [[found.get((metric, s, c)) for c in covariate] for s in semantic]
        _cells(axes, table)
        axes.set_xticks(np.arange(len(covariate)) + 0.5, [f"{c:g}" for c in covariate])
        axes.set_yticks(np.arange(len(semantic)) + 0.5, [f"{s:g}" for s in semantic])
    label_outer(grid, 3, "covariate level", "semantic level")
    return figure


def _lines(axes: Axes, rows: pd.DataFrame, axis: str, splits: Mapping[str, str]) -> None:
    for place, (split, name) in enumerate(splits.items()):
        part = rows[rows["split"] == split].sort_values(axis)
        if not len(part):
            continue
        look = style(place)
        x, y = part[axis], 100 * part["value"]
        axes.plot(x, y, color=look.color, ls=look.line, marker=look.marker, ms=3.5, label=name)
        low, high = 100 * part["ci_low"], 100 * part["ci_high"]
        axes.fill_between(x, low, high, color=look.color, alpha=0.1, lw=0)
    axes.set_xticks(sorted(rows[axis].unique()))
    axes.grid(visible=False, axis="x")


def _cells(axes: Axes, table: _Cells) -> None:
    values = np.array(
        [[np.nan if cell is None else 100 * cell["value"] for cell in row] for row in table]
    )
    axes.pcolormesh(values, cmap=_COLOURS, norm=_RANGE, edgecolor="white", lw=0.8)
    axes.set_facecolor(_EMPTY)
    centred: Any = {"ha": "center", "va": "center"}
    for (row, column), value in np.ndenumerate(values):
        cell = table[row][column]
        ink = "black" if cell is None else text_on(_COLOURS(_RANGE(value))[:3])
        shown = MISSING if cell is None else f"{value:.0f}"
        axes.text(column + 0.5, row + 0.36, shown, fontsize=6.5, color=ink, **centred)
        n = "" if cell is None else f"n={int(cell['n_pairs'])}"
        axes.text(column + 0.5, row + 0.79, n, fontsize=5, color=ink, **centred)
    axes.set_xlim(0, values.shape[1])
    axes.set_ylim(values.shape[0], 0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
