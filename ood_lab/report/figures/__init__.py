"""The figures of a run, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from ood_lab.report.figures.bars import fpr95_bars, marks_best
from ood_lab.report.figures.confusion import confusion
from ood_lab.report.figures.dad import dad_against_fpr95
from ood_lab.report.figures.dating import recall_by_category
from ood_lab.report.figures.densities import densities
from ood_lab.report.figures.features import feature_scatter
from ood_lab.report.figures.heatmap import heatmap
from ood_lab.report.figures.inputs import FigureInputs
from ood_lab.report.figures.levels import levels
from ood_lab.report.figures.risk import detects_failures, risk_curves
from ood_lab.report.figures.roc import roc
from ood_lab.report.figures.style import rc
from ood_lab.report.optional import optional
from ood_lab.report.page import FigureFile
from ood_lab.report.protocol import star_sentence
from ood_lab.report.view import RunView


def save(figure: Figure, png: Path, svg: Path) -> None:
    """Writes both formats, drawing once each (``savefig`` draws and lays out twice a format)."""
    FigureCanvasAgg(figure).print_png(png)
    figure.set_layout_engine("none")  # keep the layout of the first
    FigureCanvasSVG(figure).print_svg(svg, metadata={"Date": None})


Draw = Callable[[], Figure | None]


def planned_figures(inputs: FigureInputs) -> Iterator[tuple[str, str, str, Draw]]:
    """File name, title and caption of all that can be drawn, and the function that does it."""
    if inputs.view.sets:
        yield (
            "densities",
            "Score densities",
            "The further a line lies to the right of the grey ID test set, the better.",
            partial(densities, inputs),
        )
        star = star_sentence(inputs.view.has_significance).replace("* =", "Orange:")
        best = f" {star}" if marks_best(inputs) else ""
        order = f", {inputs.view.order}" if inputs.view.order else ""
        caption = f"FPR95 of every detector on every OOD set{order}.{best}"
        yield "fpr95_bars", "FPR95", caption, partial(fpr95_bars, inputs)
        if inputs.view.most_dad:
            yield (
                "dad_fpr95",
                "DAD against mean FPR95",
                "Further down, a detector detects better; further right, it follows the declared "
                "order of shift more.",
                partial(dad_against_fpr95, inputs),
            )
        others = len(inputs.view.detectors) - len(inputs.highlighted)
        grey = f"; in grey the {others} with the lowest mean AUROC" if others else ""
        yield "roc", "ROC", f"One panel per OOD set{grey}.", partial(roc, inputs)
    if detects_failures(inputs):
        yield (
            "risk_coverage",
            "Risk and coverage",
            "Share of failures among the images that are kept when those with the highest scores "
            "are rejected: wrong predictions on ID, and all OOD images. Dotted: the best order.",
            partial(risk_curves, inputs),
        )
    for ood in inputs.view.level_sets:
        yield (
            f"levels_{ood}",
            f"By level of shift: {ood}",
            "AUROC and FPR95 of every level, along each axis of shift.",
            partial(levels, inputs, ood),
        )
        yield (
            f"heatmap_{ood}",
            f"Semantic × covariate level: {ood}",
            "AUROC of every cell, one panel per detector.",
            partial(heatmap, inputs, ood),
        )
    yield (
        "features",
        "Features",
        "Principal components of the features of all sets together.",
        partial(feature_scatter, inputs),
    )
    yield (
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
        significance: see :func:`ood_lab.report.console_tables`.
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
    files = []
    with rc():
        for name, title, caption, draw in planned_figures(inputs):
            with optional(f"figure {name}"):
                if (figure := draw()) is not None:
                    files.append(write_figure(folder, name, title, caption, figure))
    return files


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


def write_figure(folder: Path, name: str, title: str, caption: str, figure: Figure) -> FigureFile:
    """Writes ``<name>.png`` and ``<name>.svg`` to ``folder``, which is made if missing."""
    folder.mkdir(parents=True, exist_ok=True)
    file = FigureFile(folder / f"{name}.png", folder / f"{name}.svg", title, caption)
    save(figure, file.png, file.svg)
    return file
