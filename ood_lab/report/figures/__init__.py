"""The figures of a run, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from ood_lab.cores import usable_cores
from ood_lab.report.figures.bars import fpr95_bars, marks_best
from ood_lab.report.figures.confusion import confusion
from ood_lab.report.figures.dad import dad_against_fpr95
from ood_lab.report.figures.dating import recall_by_category
from ood_lab.report.figures.densities import densities
from ood_lab.report.figures.drawing import PlannedFigure, write_all, write_figure
from ood_lab.report.figures.features import feature_scatter
from ood_lab.report.figures.heatmap import heatmap
from ood_lab.report.figures.inputs import FigureInputs
from ood_lab.report.figures.levels import levels
from ood_lab.report.figures.risk import detects_failures, risk_curves
from ood_lab.report.figures.roc import roc
from ood_lab.report.figures.style import rc
from ood_lab.report.page import FigureFile
from ood_lab.report.protocol import star_sentence
from ood_lab.report.view import RunView

#: From so many detectors on, drawing takes longer than starting another process.
_MANY_DETECTORS = 10
_MAX_HELPERS = 3  # with this process one each for the figures that take the longest


def planned_figures(inputs: FigureInputs) -> Iterator[PlannedFigure]:
    """All that can be drawn, in reading order."""
    whole, inputs = inputs, replace(inputs, features={})  # features may be large
    if inputs.view.sets:
        yield PlannedFigure(
            "densities",
            "Score densities",
            "The further a line lies to the right of the grey ID test set, the better.",
            partial(densities, inputs),
        )
        star = star_sentence(inputs.view.has_significance).replace("* =", "Orange:")
        best = f" {star}" if marks_best(inputs) else ""
        order = f", {inputs.view.order}" if inputs.view.order else ""
        caption = f"FPR95 of every detector on every OOD set{order}.{best}"
        yield PlannedFigure("fpr95_bars", "FPR95", caption, partial(fpr95_bars, inputs))
        if inputs.view.most_dad:
            yield PlannedFigure(
                "dad_fpr95",
                "DAD against mean FPR95",
                "Further down, a detector detects better; further right, it follows the declared "
                "order of shift more.",
                partial(dad_against_fpr95, inputs),
            )
        others = len(inputs.view.detectors) - len(inputs.highlighted)
        grey = f"; in grey the {others} with the lowest mean AUROC" if others else ""
        yield PlannedFigure("roc", "ROC", f"One panel per OOD set{grey}.", partial(roc, inputs))
    if detects_failures(inputs):
        yield PlannedFigure(
            "risk_coverage",
            "Risk and coverage",
            "Share of failures among the images that are kept when those with the highest scores "
            "are rejected: wrong predictions on ID, and all OOD images. Dotted: the best order.",
            partial(risk_curves, inputs),
        )
    for ood in inputs.view.level_sets:
        yield PlannedFigure(
            f"levels_{ood}",
            f"By level of shift: {ood}",
            "AUROC and FPR95 of every level, along each axis of shift.",
            partial(levels, inputs, ood),
        )
        yield PlannedFigure(
            f"heatmap_{ood}",
            f"Semantic × covariate level: {ood}",
            "AUROC of every cell, one panel per detector.",
            partial(heatmap, inputs, ood),
        )
    yield PlannedFigure(
        "features",
        "Features",
        "Principal components of the features of all sets together.",
        partial(feature_scatter, whole),
        travels=False,
    )
    yield PlannedFigure(
        "confusion",
        "ID classes",
        "Classification of the ID test set.",
        partial(confusion, inputs),
    )


def write_figures(
    folder: Path | str,
    results: pd.DataFrame,
    scores: pd.DataFrame,
    *,
    protocol: str = "openood",
    significance: pd.DataFrame | None = None,
    features: Mapping[str, np.ndarray] | None = None,
    classes: Sequence[str] = (),
    id_dataset: str = "test",
) -> list[FigureFile]:
    """Writes every figure the tables allow to ``folder`` as PNG (200 dpi) and SVG.

    One that cannot be drawn is left out with a warning.

    Args:
        folder: made if missing.
        results: long results table of one model and seed.
        scores: scores table, higher = more OOD.
        protocol: which FPR95 the results hold; stands below every figure.
        significance: see :func:`ood_lab.report.console.console_tables`.
        features: dataset → ``[N, D]`` for the scatter of features.
        classes: names of the ID classes, position = label.
        id_dataset: the ID test set in ``scores`` and ``features``.

    Returns:
        The files in reading order.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    view = RunView(results, significance)
    inputs = FigureInputs(view, scores, protocol, id_dataset, features or {}, classes)
    plan = list(planned_figures(inputs))
    many = len(view.detectors) >= _MANY_DETECTORS
    return write_all(folder, plan, min(usable_cores() - 1, _MAX_HELPERS) if many else 0)


def write_dating_figure(folder: Path | str, dating: pd.DataFrame) -> FigureFile | None:
    """Writes ``dating.png`` and ``dating.svg``: recall of every class, by category.

    Args:
        folder: made if missing.
        dating: the dating table of one run.

    Returns:
        The files; None where no image of the ID test set has a label.
    """
    with rc():
        figure = recall_by_category(dating)
        if figure is None:
            return None
        caption = "Share of the images of a class that are given that class, with 95% intervals."
        return write_figure(Path(folder), "dating", "Recall of every class", caption, figure)
