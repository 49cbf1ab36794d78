"""Risk against coverage: how wrong a model is about what it is most certain of."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ood_lab.report.figures.style import new_figure, style

Curve = tuple[NDArray[np.float64], NDArray[np.float64]]


def risk_coverage_figure(curves: Mapping[str, Curve], footer: str) -> Figure:
    """One line per split.

    Args:
        curves: name → coverage and risk.
        footer: what stands below.
    """
    figure = new_figure(2.8, footer, width=4.6)
    axes = figure.subplots()
    for place, (name, (coverage, risk)) in enumerate(curves.items()):
        look = style(place)
        axes.plot(100 * coverage, 100 * risk, color=look.color, ls=look.line, label=name)
    axes.set_xlabel("coverage (%): answers with the least doubt")
    axes.set_ylabel("wrong answers (%)")
    axes.set_xlim(0, 100)
    axes.set_ylim(bottom=0)
    axes.legend()
    return figure
