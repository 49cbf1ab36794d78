"""AUROC and FPR95 against the level of shift."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ood_lab.axes import AXES, Axis
from ood_lab.report.figures.inputs import FigureInputs
from ood_lab.report.figures.style import GREY, label_ends, new_figure, style

_LABELS = {"auroc": "AUROC in %", "fpr95": "FPR95 in %"}


def levels(inputs: FigureInputs, ood: str) -> Figure | None:
    """One line per detector with its 95% band; None where no axis has two levels."""
    axes_shown = [axis for axis in AXES if len(inputs.view.levels(ood, axis)) > 1]
    if not axes_shown:
        return None
    has_bands = any(
        inputs.view.at_level("auroc", d, ood, axis, level).has_interval
        for d in inputs.view.detectors
        for axis in axes_shown
        for level in inputs.view.levels(ood, axis)
    )
    height = max(4.4, 0.25 * len(inputs.view.detectors) + 2.2)
    figure = new_figure(
        height,
        inputs.footer(
            "Bands: 95% intervals." if has_bands else "",
            "A level is the mean over the levels of the other axis.",
            fpr95=True,
        ),
        width=1.2 + 3.0 * len(axes_shown),
    )
    grid = figure.subplots(2, len(axes_shown), squeeze=False, sharey="row")
    for row, metric in enumerate(_LABELS):
        for column, axis in enumerate(axes_shown):
            _curves(grid[row, column], inputs, metric, ood, axis)
        _set_range(grid[row])
        grid[row, 0].set_ylabel(_LABELS[metric])
    for column, axis in enumerate(axes_shown):
        grid[1, column].set_xlabel(f"{axis} level ({ood})")
        for row, metric in enumerate(_LABELS):
            _label_ends(grid[row, column], inputs, metric, ood, axis)
    return figure


def _points(
    inputs: FigureInputs, detector: str, metric: str, ood: str, axis: Axis
) -> tuple[np.ndarray, ...]:
    """Level, value, low, high (percent) of the levels that have a value."""
    shown = inputs.view.levels(ood, axis)
    cells = [inputs.view.at_level(metric, detector, ood, axis, level) for level in shown]
    kept = [(x, c) for x, c in zip(shown, cells, strict=True) if not math.isnan(c.value)]
    rows = [(x, 100 * c.value, 100 * c.low, 100 * c.high) for x, c in kept]
    return tuple(np.array(rows).reshape(-1, 4).T)


def _curves(axes: Axes, inputs: FigureInputs, metric: str, ood: str, axis: Axis) -> None:
    for position, detector in enumerate(inputs.view.detectors):
        x, y, low, high = _points(inputs, detector, metric, ood, axis)
        if detector in inputs.highlighted:
            look = style(position)
            axes.plot(x, y, color=look.color, ls=look.line, marker=look.marker, ms=3.5, zorder=3)
            axes.fill_between(x, low, high, color=look.color, alpha=0.1, lw=0, zorder=2)
        else:
            axes.plot(x, y, color=GREY, lw=0.8, zorder=1)
    axes.set_xticks(inputs.view.levels(ood, axis))
    axes.grid(visible=False, axis="x")


def _set_range(row: np.ndarray) -> None:
    low, high = row[0].get_ylim()
    row[0].set_ylim(max(low, -2.0), min(high, 102.0))


def _label_ends(axes: Axes, inputs: FigureInputs, metric: str, ood: str, axis: Axis) -> None:
    """The name of a line at its end, moved where names would overlap."""
    ends = {}
    for position, detector in enumerate(inputs.view.detectors):
        x, y, *_ = _points(inputs, detector, metric, ood, axis)
        if len(x):
            colour = style(position).color if detector in inputs.highlighted else "#777777"
            ends[detector] = (x[-1], y[-1], colour)
    label_ends(axes, ends, bold=inputs.highlighted, panels=2)
