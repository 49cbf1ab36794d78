"""FPR95 of every detector on every OOD set, and against DAD."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ood_lab.report.figures.inputs import FigureInputs
from ood_lab.report.figures.style import COLOURS, GREY, INK, WIDTH, new_figure, style, wrapped
from ood_lab.report.protocol import MISSING, percent


def fpr95_bars(inputs: FigureInputs) -> Figure:
    """One column of bars an OOD set, in shift order; detectors sorted by mean AUROC."""
    view = inputs.view
    names = len(max(view.detectors, key=len))
    letters = int((WIDTH - 0.08 * names) / len(view.sets) / 0.085)
    titles = [wrapped(s, max(letters, 8)) for s in view.sets]
    lines = max(title.count("\n") for title in titles)
    figure = new_figure(0.19 * len(view.detectors) + 0.9 + 0.13 * lines, inputs.footer())
    grid = figure.subplots(1, len(view.sets), sharey=True, squeeze=False)[0]
    for axes, ood, title in zip(grid, view.sets, titles, strict=True):
        _bars(axes, inputs, ood)
        axes.set_title(title, fontsize=7)
    middle = grid[len(grid) // 2]
    order = ", OOD sets in shift order" if view.most_dad else ""
    middle.set_xlabel(f"FPR95 in %{order}, with 95% intervals")
    grid[0].set_yticks(range(len(view.detectors)), view.detectors)
    grid[0].invert_yaxis()
    return figure


def _bars(axes: Axes, inputs: FigureInputs, ood: str) -> None:
    view = inputs.view
    cells = {d: view.get("fpr95", d, ood) for d in view.detectors}
    best = view.best("fpr95", ood, {d: c.value for d, c in cells.items()})
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


def dad_against_fpr95(inputs: FigureInputs) -> Figure:
    """How a detector follows the shift against how well it detects."""
    view = inputs.view
    figure = new_figure(
        max(3.2, 0.17 * len(view.detectors) + 1.0),
        inputs.footer("In brackets: mean FPR95. Grey lines: 95% intervals of DAD."),
        width=5.4,
    )
    axes = figure.subplots()
    order = sorted(view.detectors, key=lambda d: view.mean("fpr95", d))
    for detector in order:
        dad, fpr95 = view.get("dad", detector), 100 * view.mean("fpr95", detector)
        look = style(view.detectors.index(detector))
        if dad.has_interval:
            axes.plot([dad.low, dad.high], [fpr95, fpr95], color=GREY, lw=0.8, zorder=1)
        label = f"{detector} ({fpr95:.1f})"
        axes.plot(
            dad.value,
            fpr95,
            look.marker,
            color=look.color,
            ms=6,
            mec="white",
            mew=0.5,
            alpha=0.9,
            label=label,
        )
    axes.set_xlim(-0.5, view.most_dad + 0.5)
    axes.set_xticks(np.unique(np.linspace(0, view.most_dad, 11).round()))
    axes.set_ylim(-3, 103)
    axes.set_xlabel(f"DAD (of {view.most_dad}; larger = follows the shift order more)")
    axes.set_ylabel("mean FPR95 in % (smaller = better)")
    figure.legend(loc="outside right center")
    return figure
