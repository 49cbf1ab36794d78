"""Many panels in one pair of axes: axes for each would take several times as long to draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.path import Path
from matplotlib.textpath import TextPath

from ood_lab.report.figures.layout import new_figure, wrapped
from ood_lab.report.figures.style import WIDTH
from ood_lab.schema.arrays import Floats

_GAP = 0.1  # inches, between two panels

#: Word, its colour and its size in points → the middles of its places.
Words = dict[tuple[str, str, float], list[tuple[float, float]]]


class Sheet(NamedTuple):
    """Panels in one pair of axes, whose unit is the inch and whose origin is at the upper left.

    Attributes:
        figure: with titles and labels.
        axes: where the panels are drawn.
        corners: left and top of every panel.
        width: of a panel.
    """

    figure: Figure
    axes: Axes
    corners: list[tuple[float, float]]
    width: float


def new_sheet(
    titles: Sequence[str],
    footer: str,
    *,
    height: float,
    columns: int,
    extra: float,
    labels: tuple[str, str],
    side: float = 0.25,
) -> Sheet:
    """A figure with one panel per title, in rows of ``columns``, with room for ticks below each.

    Args:
        titles: of the panels.
        footer: text below the figure.
        height: of a panel, without its title.
        columns: at most.
        extra: inches for footer, legend and scale.
        labels: below the lowest panel of every column, and left of the first of every row.
        side: room at the left.
    """
    columns = min(len(titles), columns)
    width = (WIDTH - side + _GAP) / columns - _GAP
    broken = [wrapped(title, int((width + _GAP) / 0.072)) for title in titles]
    head = 0.08 + 0.115 * (1 + max(title.count("\n") for title in broken))
    pitch = max(head + height + 0.17, 0.8)
    total = math.ceil(len(titles) / columns) * pitch + 0.15
    figure = new_figure(total + extra + 0.1 * footer.count("\n"), footer)
    axes = figure.subplots()
    axes.set(xlim=(0, WIDTH), ylim=(total, 0), autoscale_on=False)
    axes.set_axis_off()
    corners = []
    middle: Any = {"ha": "center", "va": "center"}
    for place, title in enumerate(broken):
        row, column = divmod(place, columns)
        left, top = side + column * (width + _GAP), row * pitch + head
        corners.append((left, top))
        axes.text(left + width / 2, top - 0.04, title, ha="center", va="bottom", fontsize=7)
        if column == 0:
            axes.text(0.08, top + height / 2, labels[1], rotation=90, **middle)
        if place + columns >= len(titles):
            axes.text(left + width / 2, top + height + 0.24, labels[0], **middle)
    return Sheet(figure, axes, corners, width)


def write_words(axes: Axes, words: Words) -> None:
    """Writes every word as one mark at all its places: texts take ten times as long to draw.

    Their labels are the words after "_": no legend shows them.
    """
    for (word, ink, points), places in words.items():
        letters = TextPath((0, 0), word, size=points)
        across = letters.vertices[letters.codes != Path.CLOSEPOLY, 0]
        # Digits are 0.73 of their size high.
        middle = (across.min() + across.max()) / 2, 0.365 * points
        mark = Path(letters.vertices - middle, letters.codes)
        look: Any = {"marker": mark, "ms": 2 * np.abs(mark.vertices).max(), "mew": 0, "c": ink}
        (line,) = axes.plot(*np.transpose(places), ls="", clip_on=False, label=f"_{word}", **look)
        line.set_in_layout(False)  # inside the panel anyway


def joined(lines: Sequence[Floats]) -> Floats:
    """Lines ``[n, 2]`` as one with gaps."""
    return np.concatenate([np.append(line, [[np.nan, np.nan]], axis=0) for line in lines])
