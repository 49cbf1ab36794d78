"""Images with their titles, boxes and names, and contact sheets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from PIL import Image

from ood_lab.report.figures.layout import new_figure, panels, wrapped
from ood_lab.report.figures.style import COLOURS, WIDTH

#: Height of a title, inches.
_TITLE = 0.18
#: Pixels of an image of a contact sheet.
SIDE = 128
_STEP = 1.3  # height of a row in images
_GAP = 0.5  # between two strips
_NAMES = 2.1  # width of the names

#: Images with a few words each; None where an image cannot be had.
Strip = Sequence[tuple[Image.Image | None, str]]


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
    """The tiles in rows of ``columns``, pixels unchanged (nothing is smoothed)."""
    tallest = max(tile.pixels.shape[0] / tile.pixels.shape[1] for tile in tiles)
    height = tallest * WIDTH / columns + _TITLE
    titles = [tile.title for tile in tiles]
    figure, grid = panels(titles, footer, height=height, columns=columns, extra=0.2)
    for axes, tile in zip(grid, tiles, strict=True):
        axes.imshow(tile.pixels, interpolation="nearest")
        axes.title.set_fontsize(6)
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


def contact_sheet(
    sheet: Mapping[str, Sequence[Strip]], heads: Sequence[str], length: int, footer: str
) -> Figure:
    """One row of strips per name.

    Args:
        sheet: name → its strips, one per head.
        heads: words above the strips.
        length: images of a strip, at most.
        footer: text below the figure.
    """
    starts = [place * (length + _GAP) for place in range(len(heads))]
    right = starts[-1] + length
    height = WIDTH / (_NAMES + right) * (_STEP * len(sheet) + 0.4) + 0.3
    figure = new_figure(height, footer)
    axes = figure.subplots()
    axes.set(xlim=(-_NAMES, right), ylim=(_STEP * len(sheet), -0.4), aspect="equal")
    axes.axis("off")
    for left, words in zip(starts, heads, strict=True):
        axes.text(left, -0.1, words, va="bottom", fontsize=7)
    for place, (name, strips) in enumerate(sheet.items()):
        top = _STEP * place
        axes.text(-_NAMES, top + 0.5, wrapped(name, 16), va="center", fontsize=7)
        for left, strip in zip(starts, strips, strict=True):
            for step, (image, words) in enumerate(strip):
                _place(axes, image, left + step, top, words)
    return figure


def _place(axes: Axes, image: Image.Image | None, left: float, top: float, text: str) -> None:
    """An image inside a square of side 0.94, and a few words below."""
    axes.text(left + 0.47, top + 0.96, text, ha="center", va="top", fontsize=5)
    if image is None:
        axes.text(left + 0.47, top + 0.47, "no image", ha="center", va="center", fontsize=5)
        return
    side = max(image.size) / 0.94
    w, h = image.width / side, image.height / side
    x, y = left + (0.94 - w) / 2, top + (0.94 - h) / 2
    axes.imshow(np.asarray(image), extent=(x, x + w, y + h, y), aspect="equal")
