"""Receiver operating characteristic on every OOD set."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ood_lab.metrics import roc_curve
from ood_lab.report.figures.inputs import FigureInputs
from ood_lab.report.figures.style import GREY, label_outer, legend_columns, panels, style, wrapped

_MAX_POINTS = 400


def thin(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """About 400 of the points of a curve, its two ends among them: more cannot be seen."""
    step = max(1, len(x) // _MAX_POINTS)
    kept = np.unique(np.append(np.arange(0, len(x), step), len(x) - 1))
    return x[kept], y[kept]


def roc(inputs: FigureInputs) -> Figure:
    """One panel per OOD set, one line per detector."""
    view = inputs.view
    columns = 2 if len(view.sets) in (2, 4) else 3
    footer = inputs.footer("Dotted: where FPR95 is read.", fpr95=True)
    height = 2.15 if len(view.sets) > 2 else 2.6
    figure, grid = panels(len(view.sets), columns, height, footer, 1.1, sharex=True, sharey=True)
    for axes, ood in zip(grid, view.sets, strict=True):
        for position, detector in reversed(list(enumerate(view.detectors))):
            id_scores = inputs.scores_of(detector, inputs.id_dataset)
            fpr, tpr, _ = roc_curve(id_scores, inputs.scores_of(detector, ood))
            x, y = thin(fpr, tpr)
            if detector in inputs.highlighted:
                look = style(position)
                axes.plot(100 * x, 100 * y, color=look.color, ls=look.line, lw=1.1)
            else:
                axes.plot(100 * x, 100 * y, color=GREY, lw=0.7)
        # The operating point of FPR95 lies on this line.
        line = axes.axhline if inputs.protocol == "openood" else axes.axvline
        line(95 if inputs.protocol == "openood" else 5, color="#666666", lw=0.6, ls=(0, (1, 2)))
        axes.set(xlim=(-1, 101), ylim=(-1, 101), box_aspect=1)
        axes.set_xticks([0, 25, 50, 75, 100])
        axes.set_yticks([0, 25, 50, 75, 100])
        axes.tick_params(labelbottom=True)
        axes.set_title(wrapped(ood, 26), fontsize=7, pad=3)
    label_outer(grid, columns, "ID rejected in %", "OOD caught in %")
    detector_legend(figure, inputs)
    return figure


def detector_legend(figure: Figure, inputs: FigureInputs) -> None:
    """The highlighted detectors above the panels, the others as one grey line."""
    positions = [inputs.view.detectors.index(d) for d in inputs.highlighted]
    handles = [Line2D([], [], color=style(p).color, ls=style(p).line) for p in positions]
    labels = list(inputs.highlighted)
    if others := len(inputs.view.detectors) - len(labels):
        handles.append(Line2D([], [], color=GREY))
        labels.append(f"{others} others")
    ncols = legend_columns(labels)
    figure.legend(handles, labels, loc="outside upper center", ncols=ncols)
