"""Recall of every class, overall and by category."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ood_lab.report.figures.style import (
    COLOURS,
    INK,
    legend_columns,
    new_figure,
    short_names,
    style,
)
from ood_lab.report.protocol import MISSING

_MAX_CLASSES = 30
_ALL = "all"


def recall_by_category(dating: pd.DataFrame) -> Figure | None:
    """One row per class of the finest level, one mark a category; None without labelled images.

    Of more than 30 classes the 30 with the lowest recall are shown.
    """
    rows = dating[(dating["level"] == dating["level"].iloc[-1]) & (dating["metric"] == "recall")]
    overall = rows[rows["subset"] == _ALL].set_index("name")
    if not overall["n"].sum():
        return None
    total = len(overall)
    lowest = overall.sort_values("value", kind="stable").index[:_MAX_CLASSES]
    names = [name for name in overall.index if name in set(lowest)]
    subsets = list(rows.loc[rows["subset"] != _ALL, "subset"].unique()) or [_ALL]
    n_id = int(overall["n"].sum())
    height = (0.12 + 0.13 * len(subsets)) * max(len(names), 4) + 1.0
    figure = new_figure(height, f"Recall, not precision: the divisor counts labels. n = {n_id:,}.")
    axes = figure.subplots()
    cells = rows.set_index(["subset", "name"])
    if subsets != [_ALL]:
        _overall_bars(axes, [overall.loc[name] for name in names])
    for place, subset in enumerate(subsets):
        offset = 0.7 * ((place + 0.5) / len(subsets) - 0.5)
        _marks(axes, [cells.loc[(subset, name)] for name in names], place, offset, subset)
    short = dict(zip(overall.index, short_names(list(map(str, overall.index)), 28), strict=True))
    axes.set_yticks(range(len(names)), [short[name] for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(-2, 118)
    axes.set_xticks(range(0, 101, 20))
    axes.set_xlabel("recall in %, with 95% intervals")
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    if subsets != [_ALL]:
        shown = [_ALL, *subsets]
        figure.legend(loc="outside upper center", ncols=legend_columns(shown))
    if total > len(names):
        axes.set_title(f"the {len(names)} classes with the lowest recall, of {total}", fontsize=7)
    return figure


def _overall_bars(axes: Axes, cells: list[pd.Series]) -> None:
    """Behind the marks: the recall of all categories together."""
    values = [100 * cell["value"] for cell in cells]
    axes.barh(range(len(cells)), np.nan_to_num(values), height=0.84, color="#E9EDF1", label=_ALL)


def _marks(axes: Axes, cells: list[pd.Series], place: int, offset: float, label: str) -> None:
    look = style(place)
    points = []
    for row, cell in enumerate(cells):
        y = row + offset
        if math.isnan(cell["value"]):
            axes.text(102, y, f"{MISSING}  n=0", va="center", fontsize=6, color="#666666")
            continue
        ends = [100 * cell["ci_low"], 100 * cell["ci_high"]]
        axes.plot(ends, [y, y], color=look.color, lw=0.9, solid_capstyle="butt")
        points.append((100 * cell["value"], y))
        text = f"{100 * cell['value']:.1f}  n={int(cell['n'])}"
        axes.text(102, y, text, va="center", fontsize=6, color=INK)
    x, y_all = np.array(points).reshape(-1, 2).T
    axes.plot(x, y_all, look.marker, color=COLOURS[place % len(COLOURS)], label=label)
