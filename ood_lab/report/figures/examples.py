"""Contact sheets: the images of every set nearest to ID and farthest from it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from ood_lab.axes import Axis
from ood_lab.report.figures.shift import label_of
from ood_lab.report.figures.style import new_figure, wrapped
from ood_lab.report.nearest_farthest import nearest_farthest
from ood_lab.report.pictures import Pictures

_COUNT = 5  # at each end
_SIDE = 128  # pixels of an image
_STEP = 1.3  # height of a row in images
_GAP = 0.5  # between the nearest and the farthest
_NAMES = 2.1  # width of the names


def contact_sheet(
    degrees: pd.DataFrame, names: Sequence[str], axis: Axis, pictures: Pictures, footer: str
) -> Figure:
    """One row per set: the 5 nearest images on an axis, the 5 farthest, each with its degree.

    Args:
        degrees: one row per image: ``dataset, index`` and the degrees.
        names: the sets, in order.
        axis: ``semantic`` or ``covariate``.
        pictures: loads the images.
        footer: stands below the figure.
    """
    width = _NAMES + 2 * _COUNT + _GAP
    figure = new_figure(7.2 / width * (_STEP * len(names) + 0.4) + 0.3, footer)
    axes = figure.subplots()
    axes.set(xlim=(-_NAMES, 2 * _COUNT + _GAP), ylim=(_STEP * len(names), -0.4), aspect="equal")
    axes.axis("off")
    far = _COUNT + _GAP
    for x, words in ((0, f"nearest ({axis})"), (far, f"farthest ({axis})")):
        axes.text(x, -0.1, words, va="bottom", fontsize=7)
    for place, name in enumerate(names):
        top = _STEP * place
        axes.text(-_NAMES, top + 0.5, wrapped(label_of(name), 16), va="center", fontsize=7)
        found = nearest_farthest(degrees, name, axis, _COUNT)
        for left, rows in ((0.0, found.nearest), (far, found.farthest[::-1])):
            for step, row in enumerate(rows.to_dict("records")):
                image = pictures.small(name, int(row["index"]), _SIDE)
                _place(axes, image, left + step, top, f"{row[axis]:.3f}")
    return figure


def _place(axes: Axes, image: Image.Image | None, left: float, top: float, text: str) -> None:
    """An image inside a square of side 0.94, and its degree below."""
    axes.text(left + 0.47, top + 0.96, text, ha="center", va="top", fontsize=5)
    if image is None:
        axes.text(left + 0.47, top + 0.47, "no image", ha="center", va="center", fontsize=5)
        return
    side = max(image.size) / 0.94
    w, h = image.width / side, image.height / side
    x, y = left + (0.94 - w) / 2, top + (0.94 - h) / 2
    axes.imshow(np.asarray(image), extent=(x, x + w, y + h, y), aspect="equal")
