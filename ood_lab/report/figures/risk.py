"""Risk of what is kept over the share that is kept, on ID alone and with each OOD set."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from ood_lab.metrics import risk_coverage
from ood_lab.report.figures.inputs import FigureInputs
from ood_lab.report.figures.roc import detector_legend, thin
from ood_lab.report.figures.style import GREY, label_outer, panels, style, wrapped


def detects_failures(inputs: FigureInputs) -> bool:
    """True where the results hold an AURC: the predictions mean something."""
    return bool((inputs.view.table["metric"] == "aurc").any())


def risk_curves(inputs: FigureInputs) -> Figure:
    """One panel for ID errors, one per OOD set; one line per detector."""
    view = inputs.view
    labelled = inputs.test[inputs.test["label"] >= 0]
    wrong = (labelled["label"] != labelled["pred"]).to_numpy(np.float64)
    places = [None, *view.sets]
    columns = 2 if len(places) in (2, 4) else 3
    height = 2.15 if len(places) > 2 else 2.6
    footer = inputs.footer("Lower is better.")
    figure, grid = panels(len(places), columns, height, footer, 1.1, sharex=True)
    for axes, ood in zip(grid, places, strict=True):
        outside = 0 if ood is None else len(inputs.scores_of(view.detectors[0], ood))
        failures = np.append(wrong, np.ones(outside))
        for position, detector in reversed(list(enumerate(view.detectors))):
            scores = labelled[detector].to_numpy(np.float64)
            if ood is not None:
                scores = np.append(scores, inputs.scores_of(detector, ood))
            x, y = thin(*risk_coverage(scores, failures))
            if detector in inputs.highlighted:
                look = style(position)
                axes.plot(100 * x, 100 * y, color=look.color, ls=look.line, lw=1.1)
            else:
                axes.plot(100 * x, 100 * y, color=GREY, lw=0.7)
        # Every failure is rejected first: its score says so.
        x, y = thin(*risk_coverage(np.argsort(np.argsort(failures, kind="stable")), failures))
        axes.plot(100 * x, 100 * y, color="#666666", lw=0.8, ls=(0, (1, 2)))
        axes.set(xlim=(-1, 101), ylim=(0, None))
        axes.set_xticks([0, 25, 50, 75, 100])
        axes.tick_params(labelbottom=True)
        axes.set_title(
            "ID errors" if ood is None else wrapped(f"ID + {ood}", 26), fontsize=7, pad=3
        )
    label_outer(grid, columns, "images kept in %", "failures among them in %")
    detector_legend(figure, inputs)
    return figure
