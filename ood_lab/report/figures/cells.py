"""How many images each cell of a division has (IS-OOD, Figure 9)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ood_lab.report.figures import write_figure
from ood_lab.report.figures.style import new_figure, rc, text_on
from ood_lab.report.page import FigureFile
from ood_lab.report.protocol import MISSING
from ood_lab.shift import present_cells

_EMPTY = "#EFEFEF"
_COLOURS = matplotlib.colormaps["cividis"]


def write_cells_figure(folder: Path, counts: NDArray[np.int64], min_count: int) -> FigureFile:
    """Writes ``cells.png`` and ``cells.svg``.

    Args:
        folder: made if missing.
        counts: images of each cell, ``[covariate, semantic]``.
        min_count: cells with fewer images are N/A.
    """
    caption = f"Images of each cell; {MISSING} below {min_count}."
    with rc():
        figure = cells_figure(counts, min_count)
        return write_figure(folder, "cells", "Images by level of shift", caption, figure)


def cells_figure(counts: NDArray[np.int64], min_count: int) -> Figure:
    """Covariate rows × semantic columns, coloured by the logarithm of n."""
    rows, columns = counts.shape
    missing = f"Grey: {MISSING}, fewer than {min_count}."
    footer = f"N = {counts.sum():,} images. {missing} At the levels: their sums."
    width = min(7.2, 0.66 * columns + 1.9)
    figure = new_figure(0.42 * rows + 1.1, footer, width)
    axes = figure.subplots()
    enough = present_cells(counts, min_count)
    norm = LogNorm(max(min_count, 1), max(int(counts.max()), min_count + 1, 2))
    shown = np.where(enough, counts.astype(float), np.nan)
    axes.pcolormesh(shown, cmap=_COLOURS, norm=norm, edgecolor="white", lw=0.8)
    axes.set_facecolor(_EMPTY)  # shows where a cell is missing
    for (row, column), n in np.ndenumerate(counts):
        _write(axes, row, column, int(n), _COLOURS(norm(n)) if enough[row, column] else None)
    sums = [f"{level}\n{n:,}" for level, n in enumerate(counts.sum(axis=0))]
    axes.set_xticks(np.arange(columns) + 0.5, sums)
    sums = [f"{n:,}   {level}" for level, n in enumerate(counts.sum(axis=1))]
    axes.set_yticks(np.arange(rows) + 0.5, sums)
    axes.set(xlabel="semantic level", ylabel="covariate level", xlim=(0, columns), ylim=(rows, 0))
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    bar = figure.colorbar(ScalarMappable(norm, _COLOURS), ax=axes, label="images", aspect=30)
    bar.outline.set_visible(False)
    return figure


def _write(axes: Axes, row: int, column: int, n: int, colour: Any) -> None:
    """The number of a cell, with ``colour`` None where it is N/A."""
    centred: Any = {"ha": "center", "va": "center"}
    size = 6.5 if n < 100_000 else 5.5
    if colour is not None:
        ink = text_on(colour[:3])
        axes.text(column + 0.5, row + 0.5, f"{n:,}", fontsize=size, color=ink, **centred)
        return
    axes.text(column + 0.5, row + 0.37, MISSING, fontsize=6.5, **centred)
    axes.text(column + 0.5, row + 0.75, f"n={n:,}", fontsize=5, **centred)
