"""One look for all figures: sizes, colours, markers, labels that do not overlap."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import get_font_names

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

#: Fonts for the letters that DejaVu Sans lacks (Chinese, Japanese, Korean), where installed.
_FALLBACKS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans SC",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "Droid Sans Fallback",
    "PingFang SC",
    "Microsoft YaHei",
)

RC: Any = {
    "font.family": ["DejaVu Sans", *(f for f in _FALLBACKS if f in get_font_names())],
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
    ways = [
        [_cut(name, width) for name in names],
        [_cut(f"…{name[start:]}", width) for name in names],
    ]
    known = len(set(names))
    return next(
        (way for way in ways if len(set(way)) == known),
        [_cut(f"{place}: {name}", width) for place, name in enumerate(names)],
    )


def _cut(name: str, width: int) -> str:
    return name if len(name) <= width else f"{name[: width - 1].rstrip()}…"


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


def label_ends(
    axes: Axes,
    ends: Mapping[str, tuple[float, float, str]],
    *,
    bold: Collection[str] = (),
    markers: Mapping[str, str] | None = None,
    panels: int = 1,
    leader: tuple[float, float] = (0.02, 0.1),
) -> None:
    """Writes names at the right of their lines, moved up or down where they would overlap.

    Args:
        axes: with its final limits.
        ends: name → x, y of the end of its line and its colour.
        bold: names that stand out.
        markers: name → mark before it, as in a legend.
        panels: panels of this height below each other in the figure.
        leader: where the line from an end to its name starts and stops, in widths of the axes.
    """
    low, high = axes.get_ylim()
    # 7 pt names need about 9 pt; title, axis and footer take about an inch.
    room = (axes.figure.get_size_inches()[1] - 1.0) / panels * 72  # type: ignore[union-attr]
    placed = spread([y for _, y, _ in ends.values()], 9 / room * (high - low), low, high)
    left, right = axes.get_xlim()
    step = right - left
    for (name, (x, y, colour)), place in zip(ends.items(), placed, strict=True):
        reach = x + step * np.array(leader)
        axes.plot(reach, [y, place], color=colour, lw=0.4, clip_on=False)
        start = reach[1] + step * 0.01
        if markers:
            start += step * 0.01
            axes.plot(start, place, markers[name], color=colour, ms=4.5, clip_on=False)
            start += step * 0.015
        weight = "bold" if name in bold else "normal"
        axes.text(start, place, name, va="center", fontsize=6.5, color=colour, weight=weight)
    axes.set_xlim(left, right)


def text_on(colour: Any) -> str:
    """Black or white, whichever reads better on ``colour``."""
    red, green, blue = to_rgb(colour)
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"


def rc() -> Any:
    """Context in which figures are built and saved."""
    return matplotlib.rc_context(RC)
