"""How a detector follows the order of shift (DAD) against how well it detects (mean FPR95)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ood_lab.report.figures.inputs import FigureInputs
from ood_lab.report.figures.style import label_ends, new_figure, style

_NEAR = 4.0  # percentage points: marks of equal DAD that are nearer would cover each other
_STEP = 7.0  # points between two such marks
_AXIS = 370.0  # about the length of the axis of DAD in points


def dad_against_fpr95(inputs: FigureInputs) -> Figure:
    """One mark per detector, named at the right; marks of equal DAD and FPR95 side by side."""
    view = inputs.view
    detectors = [d for d in view.detectors if not math.isnan(view.mean("fpr95", d).value)]
    dads = [view.get("dad", d) for d in detectors]
    fpr95 = [100 * view.mean("fpr95", d).value for d in detectors]
    step = _STEP / (_AXIS / (view.most_dad + 1))
    shifts = side_by_side([d.value for d in dads], fpr95, step)
    known = any(dad.has_interval for dad in dads)
    notes = [
        "Thick lines: 95% intervals of DAD." if known else "",
        "DAD is a whole number: marks that would cover each other stand side by side."
        if any(shifts)
        else "",
    ]
    height = max(3.2, 0.155 * len(detectors) + 1.4)
    figure = new_figure(height, inputs.footer(*notes, fpr95=True))
    axes = figure.subplots()
    _frame(axes, view.most_dad)
    ends = {}
    for name, dad, y, shift in zip(detectors, dads, fpr95, shifts, strict=True):
        look = style(view.detectors.index(name))
        if dad.has_interval:
            axes.plot([dad.low, dad.high], [y, y], color=look.color, lw=2.5, alpha=0.25, zorder=1)
        x = dad.value + shift
        axes.plot([x, axes.get_xlim()[1]], [y, y], color=look.color, lw=0.4, zorder=2)
        axes.plot(
            x, y, look.marker, color=look.color, ms=6, mec="white", mew=0.5, zorder=3, clip_on=False
        )
        ends[name] = (axes.get_xlim()[1], y, look.color)
    markers = {d: style(view.detectors.index(d)).marker for d in detectors}
    label_ends(axes, ends, markers=markers, leader=(0.0, 0.04))
    return figure


def _frame(axes: Axes, most: int) -> None:
    axes.set_xlim(-0.5, most + 0.5)
    axes.set_xticks(np.unique(np.linspace(0, most, 11).round()))
    axes.set_ylim(-3, 103)
    axes.set_xlabel(f"DAD (of {most}; larger = follows the shift order more)")
    axes.set_ylabel("mean FPR95 in % (smaller = better)")


def side_by_side(dads: Sequence[float], fpr95: Sequence[float], step: float) -> list[float]:
    """What to add to each DAD so that marks of equal DAD and nearly equal FPR95 are all seen.

    Args:
        dads: whole numbers.
        fpr95: in percent.
        step: between two marks; less where there is no room for it.
    """
    shifts = [0.0] * len(dads)
    for dad in set(dads):
        same = sorted((i for i, d in enumerate(dads) if d == dad), key=lambda i: fpr95[i])
        groups: list[list[int]] = []
        for i in same:
            if groups and fpr95[i] - fpr95[groups[-1][-1]] < _NEAR:
                groups[-1].append(i)
            else:
                groups.append([i])
        for group in groups:
            apart = min(step, 0.8 / len(group))
            for place, i in enumerate(sorted(group)):
                shifts[i] = apart * (place - (len(group) - 1) / 2)
    return shifts
