"""Contact sheets: rows of images with a few words each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from ood_lab.report.figures.layout import new_figure, wrapped
from ood_lab.report.figures.style import WIDTH

#: Pixels of an image of a contact sheet.
SIDE = 128
_STEP = 1.3  # height of a row in images
_GAP = 0.5  # between two strips
_NAMES = 2.1  # width of the names

#: Images with a few words each; None where an image cannot be had.
Strip = Sequence[tuple[Image.Image | None, str]]


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
