"""The look of all figures; panels, legends, and names that do not overlap."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from scipy.optimize import isotonic_regression

from ood_lab.report.rendering.table import break_name, cut

#: Full text width of a two-column paper, inches.
WIDTH = 7.2
#: Okabe and Ito's palette without yellow, which is too light for a line on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
GREY = "#B8B8B8"
SOFT = "#666666"
INK = "#222222"
#: Where the line from the end of a line to its name starts and stops, in widths of the axes.
_LEADER = (0.02, 0.1)
ID_COLOUR = "#9A9A9A"


class Style(NamedTuple):
    """How one series is drawn; distinct without colour, too."""

    color: str
    line: str
    marker: str


def style(position: int) -> Style:
    """Style of series ``position``; 28 differ in colour and line, 63 in colour and marker."""
    return Style(
        COLOURS[position % len(COLOURS)],
        LINES[position // len(COLOURS) % len(LINES)],
        MARKERS[position % len(MARKERS)],
    )


def text_on(colour: Any) -> str:
    """Black or white, whichever reads better on ``colour``."""
    red, green, blue = to_rgb(colour)
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"


def new_figure(height: float, footer: str, width: float = WIDTH) -> Figure:
    """An empty figure (inches) with its footer; not known to pyplot."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.supxlabel(footer, x=0.01, ha="left", fontsize=6, color=SOFT)
    return figure


def panels(
    titles: Sequence[str],
    footer: str,
    *,
    height: float,
    columns: int = 3,
    extra: float = 0.9,
    width: float = WIDTH,
    labels: tuple[str, str] = ("", ""),
    **options: Any,
) -> tuple[Figure, list[Axes]]:
    """A figure with one panel per title, in rows of ``columns``.

    Args:
        titles: of the panels; "" where a panel needs none.
        footer: text below the figure.
        height: of a panel, inches.
        columns: at most.
        extra: inches for all the rest.
        width: of the figure, inches.
        labels: of the horizontal axis, below the lowest panel of every column, and of the vertical
            axis, left of the first panel of every row.
        options: of :meth:`matplotlib.figure.Figure.subplots`.
    """
    columns = min(len(titles), columns)
    rows = math.ceil(len(titles) / columns)
    figure = new_figure(rows * height + extra, footer, width)
    grid = figure.subplots(rows, columns, squeeze=False, **options)
    for axes in grid.flat[len(titles) :]:
        axes.remove()
    shown = list(grid.flat[: len(titles)])
    letters = int(width / columns / 0.072)
    for place, (axes, title) in enumerate(zip(shown, titles, strict=True)):
        axes.set_title(wrapped(title, letters), fontsize=7, pad=3)
        lowest, first = place + columns >= len(titles), place % columns == 0
        if lowest:
            axes.tick_params(labelbottom=True)  # shared axes have ticks in the last row alone
        for axis, label, here in ((axes.xaxis, labels[0], lowest), (axes.yaxis, labels[1], first)):
            if here:
                axis.set_label_text(label)
            elif label:
                axis.set_label_coords(0, 0)  # spares looking for the place of a label without words
    return figure, shown


def add_legend(figure: Figure, grid: Sequence[Axes]) -> None:
    """One legend above the panels for what has a label in any of them."""
    handles: dict[str, Artist] = {}
    for axes in grid:
        lines, labels = axes.get_legend_handles_labels()
        for handle, label in zip(lines, labels, strict=True):
            handles.setdefault(label, handle)
    if handles:
        widest = max(map(len, handles)) * 0.062 + 0.45  # inches, in letters of 7 pt
        columns = max(1, min(len(handles), int(figure.get_figwidth() / widest)))
        figure.legend(handles.values(), handles, loc="outside upper center", ncols=columns)


def wrapped(name: str, width: int) -> str:
    """``name`` broken into lines of about ``width`` letters, inside a word only if it is long."""
    longest = width + 4
    lines = [
        line[start : start + longest]
        for line in break_name(name, width)
        for start in range(0, max(len(line), 1), longest)
    ]
    return "\n".join(lines)


def short_names(names: Sequence[str], width: int = 24) -> list[str]:
    """Names of at most ``width`` letters, cut where they do not make the names alike.

    The end goes first, then what all names begin with; if they are still alike, they are numbered.
    """
    alike = [len(set(letters)) == 1 for letters in zip(*names, strict=False)]
    start = alike.index(False) if False in alike else 0
    for texts in (names, [f"…{name[start:]}" for name in names]):
        short = [cut(text, width) for text in texts]
        if len(set(short)) == len(set(names)):
            return short
    return [cut(f"{place}: {name}", width) for place, name in enumerate(names)]


def spread(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions at least ``gap`` apart in ``[low, high]``, in the same order, moved little.

    Where there is no room for the gap they are evenly spaced.
    """
    if not len(positions):
        return []
    order = np.argsort(positions, kind="stable")
    gap = min(gap, (high - low) / max(len(positions) - 1, 1))
    offsets = gap * np.arange(len(order))
    # With the gaps taken out, "apart" is "not decreasing".
    pooled = isotonic_regression(np.take(positions, order) - offsets).x
    placed = np.empty(len(order))
    placed[order] = np.clip(pooled, low, high - offsets[-1]) + offsets
    return placed.tolist()


def label_ends(
    axes: Axes,
    ends: Mapping[str, tuple[float, float, str]],
    *,
    bold: Collection[str] = (),
    panels: int = 1,
) -> None:
    """Writes names at the right of their lines, moved up or down where they would overlap.

    Args:
        axes: with its final limits.
        ends: name → x, y of the end of its line and its colour.
        bold: names to highlight.
        panels: panels of this height below each other in the figure.
    """
    low, high = axes.get_ylim()
    # 7 pt names need about 9 pt; title, axis and footer take about an inch.
    room = (axes.figure.get_size_inches()[1] - 1.0) / panels * 72  # type: ignore[union-attr]
    placed = spread([y for _, y, _ in ends.values()], 9 / room * (high - low), low, high)
    left, right = axes.get_xlim()
    step = right - left
    reach = step * np.array(_LEADER)
    lines = [
        [(x + reach[0], y), (x + reach[1], place)]
        for (x, y, _), place in zip(ends.values(), placed, strict=True)
    ]
    colours = [colour for *_, colour in ends.values()]
    axes.add_collection(
        LineCollection(lines, colors=colours, lw=0.4, capstyle="projecting", clip_on=False),
        autolim=False,
    )
    for (name, (x, _, colour)), place in zip(ends.items(), placed, strict=True):
        start = x + reach[1] + step * 0.01
        weight = "bold" if name in bold else "normal"
        axes.text(start, place, name, va="center", fontsize=6.5, color=colour, weight=weight)
    axes.set_xlim(left, right)
