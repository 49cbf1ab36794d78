"""Lines over levels or other numbers, with their intervals, and curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.path import Path
from numpy.typing import NDArray

from ood_lab.report.figures.layout import (
    GREY,
    Style,
    add_legend,
    label_ends,
    new_figure,
    panels,
    style,
)
from ood_lab.schema.image_columns import LEVELS
from ood_lab.schema.results import Names

_QUIET = "#777777"  # of the name of a grey line

Floats = NDArray[np.floating]
#: x and y.
Points = tuple[np.ndarray, np.ndarray]


class Line(NamedTuple):
    """A line with the band of its intervals.

    Attributes:
        x: positions of its points.
        y: of the same length.
        look: None draws it thin and grey.
        label: of its entry in the legend, if it has one.
        low: lower ends of the intervals; None without a band.
        high: upper ends.
        width: of the line in points.
    """

    x: Floats
    y: Floats
    look: Style | None
    label: str = ""
    low: Floats | None = None
    high: Floats | None = None
    width: float = 1.2


def curve(x: Floats, y: Floats, look: Style | None, label: str = "") -> Line:
    """A line in percent without marks and without the points that nobody could see."""
    plain = look and look._replace(marker="")
    kept = thinned(100 * np.column_stack([x, y]))
    return Line(kept[:, 0], kept[:, 1], plain, label)


def thinned(points: Floats) -> Floats:
    """The points ``[n, 2]`` of a line in percent that give it its shape.

    No removed point is further than 0.2, which is less than a pixel of a panel 2 inches
    wide, from the line through the others.
    """
    for _ in range(2):  # of the steps of a large set the first round leaves every tenth
        path = Path(points)
        path.simplify_threshold = 0.1
        kept = path.cleaned(simplify=True)
        points = np.asarray(kept.vertices)[kept.codes != Path.STOP]
    return points


def lines_of(rows: pd.DataFrame, x: str, column: str, names: Names) -> list[Line]:
    """One line in percent per series that has a value.

    Args:
        rows: ``value, ci_low, ci_high`` as shares, and the two columns.
        x: column of the horizontal axis.
        column: tells the series apart.
        names: key in ``column`` → label of its line; the styles follow this order.
    """
    defined = rows[rows["value"].notna()].sort_values(x, kind="stable")
    lines = []
    for place, (key, label) in enumerate(names.items()):
        part = defined[defined[column] == key]
        ends = ("value", "ci_low", "ci_high")
        y, low, high = (100 * part[name].to_numpy(float) for name in ends)
        if len(part):
            lines.append(Line(part[x].to_numpy(float), y, style(place), label, low, high))
    return lines


def draw_lines(axes: Axes, lines: Sequence[Line], edged: bool = False) -> None:
    """Draws lines, the first above the others, and grey ones below all.

    Args:
        axes: where to.
        lines: with their bands.
        edged: draw the edges of the bands in the style of their lines, for bands of one colour.
    """
    for place, line in enumerate(lines):
        if line.look is None:
            continue
        color, dash, marker = line.look
        axes.plot(
            line.x,
            line.y,
            color=color,
            ls=dash,
            lw=line.width,
            marker=marker,
            ms=3.5,
            label=line.label,
            zorder=3 - 0.01 * place,
        )
        if line.low is not None and line.high is not None:
            edge: Any = {"ec": to_rgba(color, 0.5), "lw": 0.5, "ls": dash} if edged else {"lw": 0}
            band = to_rgba(color, 0.12)
            axes.fill_between(line.x, line.low, line.high, fc=band, **edge, zorder=2)
    grey = [line for line in lines if line.look is None]
    if grey:  # as one line with gaps
        gap = np.full((1, 2), np.nan)
        points = np.concatenate([[*zip(line.x, line.y, strict=True), *gap] for line in grey])
        axes.plot(points[:, 0], points[:, 1], color=GREY, lw=0.7, label=grey[0].label, zorder=1)
    axes.grid(visible=False, axis="x")


def level_lines(
    rows: pd.DataFrame,
    metrics: Names,
    names: Names,
    footer: str,
    *,
    by: str = "split",
    highlighted: Sequence[str] | None = None,
) -> Figure | None:
    """One panel per metric and axis of shift, a line per name; None without two levels.

    Args:
        rows: ``semantic_level, covariate_level, metric, value, ci_low, ci_high`` and the column
            that tells the lines apart. Those of a level have no level of the other axis.
        metrics: key in the rows → label.
        names: key in the rows → name of its line.
        footer: text below the figure.
        by: the column that tells the lines apart.
        highlighted: where given, names are at the ends of the lines, and others than these are
            grey; else a legend has all of them.
    """
    parts = {}
    for axis, other in (LEVELS, LEVELS[::-1]):
        part = rows[rows[axis].notna() & rows[other].isna() & rows[by].isin(names)]
        if part.loc[part["value"].notna(), axis].nunique() > 1:
            parts[axis] = part
    if not parts:
        return None
    tall = len(names) > 12 and highlighted is not None
    height = max(1.9 * len(metrics), 0.25 * len(names) + 1.5 if tall else 0) + 0.7
    figure = new_figure(height, footer, width=3.3 * len(parts) + 0.6)
    grid = figure.subplots(len(metrics), len(parts), squeeze=False, sharex="col", sharey="row")
    for row, (metric, label) in zip(grid, metrics.items(), strict=True):
        panels = []
        for axes, (axis, part) in zip(row, parts.items(), strict=True):
            lines = lines_of(part[part["metric"] == metric], axis, by, names)
            panels.append(lines)
            loud = names.values() if highlighted is None else highlighted
            draw_lines(axes, [q if q.label in loud else q._replace(look=None) for q in lines])
            axes.set_xticks(sorted(part[axis].unique()))
        low, high = row[0].get_ylim()  # bands of some methods leave the possible values
        row[0].set_ylim(max(low, -2.0), min(high, 102.0))
        row[0].set_ylabel(f"{label} (%)")
        for axes, lines in zip(row, panels, strict=True):
            if highlighted is not None:
                ends = {}
                for line in lines:
                    colour = line.look.color if line.label in highlighted and line.look else _QUIET
                    ends[line.label] = (line.x[-1], line.y[-1], colour)
                label_ends(axes, ends, bold=highlighted, panels=len(metrics))
    for axes, axis in zip(grid[-1], parts, strict=True):
        axes.set_xlabel(axis.replace("_", " "))
    if highlighted is None:
        add_legend(figure, list(grid.flat))
    return figure


def trend_lines(rows: pd.DataFrame, column: str, metrics: Names, footer: str) -> Figure | None:
    """One panel a metric over a number; None with fewer than two values of the column.

    Args:
        rows: ``metric, value, ci_low, ci_high`` (shares), ``n`` and the column.
        column: what the horizontal axis shows.
        metrics: key in the rows → title.
        footer: text below the figure.
    """
    part = rows[rows[column].notna()]
    if part[column].nunique() < 2:
        return None
    titles = [f"{title} (%)" for title in metrics.values()]
    figure, grid = panels(titles, footer, height=1.7, extra=0.5, labels=(column, ""))
    for axes, line in zip(grid, metrics, strict=True):
        points = part[part["metric"] == line].sort_values(column)
        draw_lines(axes, lines_of(points, column, "metric", {line: ""}))
        counts = zip(points[column], points["n"].astype(int), strict=True)
        names = [f"{x:g}\nn={count:,}" for x, count in counts]
        axes.set_xticks(points[column].tolist(), names, fontsize=6)
        axes.set_ylim(bottom=0)
    return figure
