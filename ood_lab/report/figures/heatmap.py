"""AUROC of every cell of the semantic × covariate grid."""

from __future__ import annotations

import math
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from ood_lab.report.figures.inputs import FigureInputs
from ood_lab.report.figures.style import label_outer, panels, text_on
from ood_lab.report.protocol import MISSING
from ood_lab.report.view import Estimate

_EMPTY = "#EFEFEF"
_COLOURS = matplotlib.colormaps["cividis"]
_RANGE = Normalize(50, 100)


def heatmap(inputs: FigureInputs, ood: str) -> Figure | None:
    """One panel per detector and one of the number of images; None without a grid, or values."""
    semantic, covariate = inputs.view.cell_levels(ood)
    if not semantic:
        return None
    columns = 3 if len(covariate) <= 6 else 2 if len(covariate) <= 10 else 1
    height = 0.29 * len(semantic) + 0.25
    first, *_ = detectors = inputs.view.detectors
    cells = [inputs.view.get("auroc", first, ood, s, c) for s in semantic for c in covariate]
    few = f"{MISSING} where the OOD images are too few." if any(map(_missing, cells)) else ""
    figure, grid = panels(len(detectors) + 1, columns, height, inputs.footer(few), 1.1)
    # The same images for every detector: said once, it is easier to read and twice as fast to draw.
    for axes, title in zip(grid, [*detectors, "number of OOD images"], strict=True):
        axes.set_title(title, fontsize=7, pad=2)
        if title in detectors:
            _cells(axes, inputs, title, ood)
        else:
            _numbers(axes, inputs, ood)
        axes.set_xticks(np.arange(len(covariate)) + 0.5, [f"{c:g}" for c in covariate])
        axes.set_yticks(np.arange(len(semantic)) + 0.5, [f"{s:g}" for s in semantic])
        axes.tick_params(labelleft=axes in grid[::columns])
    label_outer(grid, columns, "covariate level", "semantic level")
    figure.colorbar(
        ScalarMappable(_RANGE, _COLOURS),
        ax=grid,
        label=f"AUROC in % ({ood})",
        location="top",
        extend="min",
        aspect=50,
        shrink=0.5,
        pad=0.01,
    )
    return figure


def _missing(cell: Estimate) -> bool:
    return math.isnan(cell.value)


def _cells(axes: Axes, inputs: FigureInputs, detector: str, ood: str) -> None:
    semantic, covariate = inputs.view.cell_levels(ood)
    cells = [[inputs.view.get("auroc", detector, ood, s, c) for c in covariate] for s in semantic]
    values = np.array([[100 * cell.value for cell in row] for row in cells])
    axes.pcolormesh(values, cmap=_COLOURS, norm=_RANGE, edgecolor="white", lw=0.8)
    for (row, column), value in np.ndenumerate(values):
        missing = math.isnan(value)
        ink = "black" if missing else text_on(_COLOURS(_RANGE(value))[:3])
        _write(axes, row, column, MISSING if missing else f"{value:.0f}", ink)
    _tidy(axes, len(semantic), len(covariate))


def _numbers(axes: Axes, inputs: FigureInputs, ood: str) -> None:
    semantic, covariate = inputs.view.cell_levels(ood)
    detector = inputs.view.detectors[0]
    for row, s in enumerate(semantic):
        for column, c in enumerate(covariate):
            n = inputs.view.get("auroc", detector, ood, s, c).n_ood
            _write(axes, row, column, f"{n}", "black")
    _tidy(axes, len(semantic), len(covariate))


def _write(axes: Axes, row: int, column: int, text: str, ink: str) -> None:
    """The text in the middle of a cell."""
    where: Any = {"ha": "center", "va": "center", "fontsize": 6.5, "color": ink}
    shown = axes.text(column + 0.5, row + 0.5, text, **where)
    shown.set_in_layout(False)  # inside the panel anyway; saves half of the time


def _tidy(axes: Axes, rows: int, columns: int) -> None:
    axes.set_facecolor(_EMPTY)  # shows where a cell is missing
    axes.set_xlim(0, columns)
    axes.set_ylim(rows, 0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
