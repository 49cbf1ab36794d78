"""Images in a grid, each with a title, its boxes and their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from ood_lab.report.figures.style import COLOURS, WIDTH, panels

#: Height of a title, inches.
_TITLE = 0.18


class Box(NamedTuple):
    """A named rectangle in an image: left, top, width and height in pixels."""

    left: float
    top: float
    width: float
    height: float
    name: str


class Tile(NamedTuple):
    """One image of a sheet.

    Attributes:
        pixels: ``[H, W, 3] uint8``.
        title: a few words above it.
        boxes: drawn over it.
    """

    pixels: NDArray[np.uint8]
    title: str
    boxes: Sequence[Box] = ()


def annotated(tiles: Sequence[Tile], columns: int, footer: str) -> Figure:
    """The tiles in rows of ``columns``, pixels as they are (nothing is smoothed)."""
    tallest = max(tile.pixels.shape[0] / tile.pixels.shape[1] for tile in tiles)
    height = tallest * WIDTH / columns + _TITLE
    figure, grid = panels(len(tiles), columns, height, footer, extra=0.2)
    for axes, tile in zip(grid, tiles, strict=True):
        axes.imshow(tile.pixels, interpolation="nearest")
        axes.set_title(tile.title, fontsize=6)
        axes.set_axis_off()
        for position, box in enumerate(tile.boxes):
            _draw(axes, box, COLOURS[position % len(COLOURS)], tile.pixels.shape[1])
    return figure


def _draw(axes: Axes, box: Box, colour: str, width: int) -> None:
    # A pixel is centred on its index: its left edge lies half a pixel before.
    corner = (box.left - 0.5, box.top - 0.5)
    axes.add_patch(
        Rectangle(corner, box.width, box.height, fill=False, edgecolor=colour, linewidth=0.7)
    )
    # Names end where their boxes do in the right half: they stay within the image.
    right = box.left + box.width / 2 > width / 2
    axes.text(
        corner[0] + box.width if right else corner[0],
        corner[1],
        box.name,
        fontsize=4,
        color="white",
        ha="right" if right else "left",
        va="bottom",
        path_effects=[patheffects.withStroke(linewidth=1.2, foreground="black")],
    )
