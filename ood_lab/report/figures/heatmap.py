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

_EMPTY = "#EFEFEF"
_COLOURS = matplotlib.colormaps["cividis"]
_RANGE = Normalize(50, 100)


def heatmap(inputs: FigureInputs, ood: str) -> Figure | None:
    """One panel per detector, n in every cell; None without a grid, or any cell with a value."""
    semantic, covariate = inputs.view.cell_levels(ood)
    if not semantic:
        return None
    columns = 3 if len(covariate) <= 6 else 2 if len(covariate) <= 10 else 1
    height = 0.29 * len(semantic) + 0.25
    n = len(inputs.view.detectors)
    first = inputs.view.detectors[0]
    cells = [inputs.view.get("auroc", first, ood, s, c) for s in semantic for c in covariate]
    few = f"; {MISSING} where they are too few" if any(math.isnan(c.value) for c in cells) else ""
    footer = inputs.footer(f"n = number of OOD images{few}.")
    figure, grid = panels(n, columns, height, footer, 1.1, sharex=True, sharey=True)
    for axes, detector in zip(grid, inputs.view.detectors, strict=True):
        axes.set_title(detector, fontsize=7, pad=2)
        _cells(axes, inputs, detector, ood)
        axes.set_xticks(np.arange(len(covariate)) + 0.5, [f"{c:g}" for c in covariate])
        axes.set_yticks(np.arange(len(semantic)) + 0.5, [f"{s:g}" for s in semantic])
        # With shared axes only the lowest row has labels; removed panels would take theirs.
        axes.tick_params(labelbottom=True)
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


def _cells(axes: Axes, inputs: FigureInputs, detector: str, ood: str) -> None:
    semantic, covariate = inputs.view.cell_levels(ood)
    cells = [[inputs.view.get("auroc", detector, ood, s, c) for c in covariate] for s in semantic]
    values = np.array([[100 * cell.value for cell in row] for row in cells])
    axes.pcolormesh(values, cmap=_COLOURS, norm=_RANGE, edgecolor="white", lw=0.8)
    axes.set_facecolor(_EMPTY)  # shows where a cell is missing
    centred: Any = {"ha": "center", "va": "center"}
    for (row, column), value in np.ndenumerate(values):
        missing = math.isnan(value)
        ink = "black" if missing else text_on(_COLOURS(_RANGE(value))[:3])
        shown = MISSING if missing else f"{value:.0f}"
        n = f"n={cells[row][column].n_ood}"
        texts = [
            axes.text(column + 0.5, row + 0.36, shown, fontsize=6.5, color=ink, **centred),
            axes.text(column + 0.5, row + 0.79, n, fontsize=5, color=ink, **centred),
        ]
        for text in texts:
            text.set_in_layout(False)  # inside the panel anyway; saves half of the time
    axes.set_xlim(0, len(covariate))
    axes.set_ylim(len(semantic), 0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
