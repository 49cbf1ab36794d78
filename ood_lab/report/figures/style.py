"""One look for all figures: sizes, colours, markers, labels that do not overlap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from ood_lab.report.columns import break_name

#: Full text width of a two-column paper, inches.
WIDTH = 7.2
#: Okabe and Ito's palette without yellow, which is too light for a line on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
GREY = "#B8B8B8"
INK = "#222222"
ID_COLOUR = "#9A9A9A"

RC: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "axes.edgecolor": INK,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "figure.facecolor": "white",
    "figure.dpi": 200,
    "axes.unicode_minus": True,
    "svg.hashsalt": "ood_lab",  # the same figure is the same file
}


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


def new_figure(height: float, footer: str, width: float = WIDTH) -> Figure:
    """An empty figure (inches) with its footer; not known to pyplot."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.supxlabel(footer, x=0.01, ha="left", fontsize=6, color="#666666")
    return figure


def panels(
    n: int, columns: int, panel_height: float, footer: str, extra: float = 0.9, **options: Any
) -> tuple[Figure, list[Axes]]:
    """A figure with ``n`` panels in rows of ``columns``; ``extra`` inches for all the rest."""
    columns = min(n, columns)
    rows = math.ceil(n / columns)
    figure = new_figure(rows * panel_height + extra, footer)
    grid = figure.subplots(rows, columns, squeeze=False, **options)
    for axes in grid.flat[n:]:
        axes.remove()
    return figure, list(grid.flat[:n])


def label_outer(grid: Sequence[Axes], columns: int, x: str, y: str) -> None:
    """Names the axes of the lowest panel of every column and the first panel of every row."""
    columns = min(columns, len(grid))
    for position, axes in enumerate(grid):
        if position + columns >= len(grid):
            axes.set_xlabel(x)
        if position % columns == 0:
            axes.set_ylabel(y)


def wrapped(name: str, width: int) -> str:
    """``name`` broken into lines of about ``width`` letters."""
    return "\n".join(break_name(name, width))


def legend_columns(labels: Sequence[str], inches: float = WIDTH) -> int:
    """Columns of a legend of ``labels`` (7 pt) that fit into ``inches``."""
    widest = max(len(label) for label in labels) * 0.062 + 0.45
    return max(1, min(len(labels), int(inches / widest)))


def spread(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions at least ``gap`` apart in ``[low, high]``, in the same order, moved little.

    Where there is no room for the gap they are evenly spaced.
    """
    if not len(positions):
        return []
    order = np.argsort(positions, kind="stable")
    gap = min(gap, (high - low) / max(len(positions) - 1, 1))
    moved = np.asarray(positions, dtype=float)[order]
    offsets = gap * np.arange(len(moved))
    # With the gaps taken out, "apart" is "not decreasing": pool what violates it.
    blocks: list[list[float]] = []
    for value in moved - offsets:
        blocks.append([value])
        while len(blocks) > 1 and np.mean(blocks[-2]) > np.mean(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    pooled = np.concatenate([np.full(len(b), np.mean(b)) for b in blocks])
    placed = np.clip(pooled, low, high - offsets[-1]) + offsets
    result = np.empty(len(placed))
    result[order] = placed
    return [float(p) for p in result]


def text_on(colour: Any) -> str:
    """Black or white, whichever reads better on ``colour``."""
    red, green, blue = to_rgb(colour)
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"


def rc() -> Any:
    """Context in which figures are built and saved."""
    return matplotlib.rc_context(RC)
