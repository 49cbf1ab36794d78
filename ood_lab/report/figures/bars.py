"""FPR95 of every detector on every OOD set."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ood_lab.report.figures.inputs import FigureInputs
from ood_lab.report.figures.style import COLOURS, INK, WIDTH, new_figure, wrapped
from ood_lab.report.protocol import MISSING, percent


def fpr95_bars(inputs: FigureInputs) -> Figure:
    """One column of bars per OOD set, in shift order; detectors sorted by mean AUROC."""
    view = inputs.view
    names = len(max(view.detectors, key=len))
    letters = int((WIDTH - 0.08 * names) / len(view.sets) / 0.085)
    titles = [wrapped(s, max(letters, 8)) for s in view.sets]
    lines = max(title.count("\n") for title in titles)
    figure = new_figure(0.19 * len(view.detectors) + 0.9 + 0.13 * lines, inputs.footer(fpr95=True))
    grid = figure.subplots(1, len(view.sets), sharey=True, squeeze=False)[0]
    for axes, ood, title in zip(grid, view.sets, titles, strict=True):
        _bars(axes, inputs, ood)
        axes.set_title(title, fontsize=7)
    middle = grid[len(grid) // 2]
    order = f", OOD sets {view.order}" if view.order else ""
    known = any(view.get("fpr95", d, s).has_interval for d in view.detectors for s in view.sets)
    middle.set_xlabel(
        f"FPR95 in %{order}{', with 95% intervals' if known else ''}",
        x=0.5 if len(grid) % 2 else 0.0,  # of two in the middle, between them
    )
    grid[0].set_yticks(range(len(view.detectors)), view.detectors)
    grid[0].invert_yaxis()
    return figure


def marks_best(inputs: FigureInputs) -> bool:
    """True where a column has a best detector to point out."""
    return any(_best(inputs, ood) for ood in inputs.view.sets)


def _best(inputs: FigureInputs, ood: str) -> set[str]:
    view = inputs.view
    return view.best("fpr95", ood, {d: view.get("fpr95", d, ood).value for d in view.detectors})


def _bars(axes: Axes, inputs: FigureInputs, ood: str) -> None:
    view = inputs.view
    cells = {d: view.get("fpr95", d, ood) for d in view.detectors}
    best = _best(inputs, ood)
    for row, (detector, cell) in enumerate(cells.items()):
        if math.isnan(cell.value):
            axes.text(2, row, MISSING, va="center", fontsize=6, color="#666666")
            continue
        colour = COLOURS[1] if detector in best else COLOURS[0]
        axes.barh(row, 100 * cell.value, height=0.72, color=colour, alpha=0.85)
        end = 100 * (cell.high if cell.has_interval else cell.value)
        if cell.has_interval:
            ends = [100 * cell.low, 100 * cell.high]
            axes.plot(ends, [row, row], color=INK, lw=0.7, solid_capstyle="butt")
        weight = "bold" if detector in best else "normal"
        label = percent(cell.value)
        axes.text(end + 3, row, label, va="center", fontsize=6, weight=weight)
    axes.set_xlim(0, 110 + 6 * len(view.sets))  # room for the numbers
    axes.set_xticks([0, 50, 100])
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
