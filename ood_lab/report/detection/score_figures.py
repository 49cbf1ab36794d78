"""Figures of scores: densities, FPR95, curves."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from ood_lab.metrics import roc_curve
from ood_lab.report.detection.figure_inputs import FigureInputs
from ood_lab.report.figures.bars import Bar, bar_columns
from ood_lab.report.figures.densities import draw_densities, limits_of
from ood_lab.report.figures.layout import (
    COLOURS,
    SOFT,
    WIDTH,
    add_legend,
    panels,
    wrapped,
)
from ood_lab.report.figures.lines import Points, draw_lines
from ood_lab.report.figures.scatter import styles_of
from ood_lab.report.rendering.metric_definitions import percent
from ood_lab.report.results_lookup import RunView
from ood_lab.schema.results import ID_TEST

_TICKS = (-1000, -100, -10, -1, 0, 1, 10, 100, 1000, 10_000)


def densities(inputs: FigureInputs) -> Figure:
    """One panel per detector, in the order of the table; ID filled, OOD sets as lines."""
    view, test = inputs.view, ID_TEST
    note = "Scores in ID interquartile ranges from the ID median (asinh scale), higher = more OOD."
    titles = [_density_title(view, detector) for detector in view.detectors]
    labels = ("score", "density")
    figure, grid = panels(titles, inputs.footer(note), height=1.15, extra=0.75, labels=labels)
    names = {test: "ID test", **{name: name for name in view.sets}}
    styles = styles_of(list(names), test)
    for axes, detector in zip(grid, view.detectors, strict=True):
        scores = {name: inputs.scores_of(detector, name) for name in names}
        values = {name: normalise(part, scores[test]) for name, part in scores.items()}
        limits = limits_of(list(values.values()), outside=0.005, margin=0.08)
        draw_densities(axes, values, styles, limits, labels=names, filled=test)
        ticks = _asinh_ticks(limits)
        axes.set_xticks(np.arcsinh(ticks), [f"{tick:,}".replace("-", "−") for tick in ticks])
    add_legend(figure, grid)
    return figure


def _density_title(view: RunView, detector: str) -> str:
    dad = view.get("dad", detector).value
    rank = "" if math.isnan(dad) else f"DAD {dad:.0f}, "
    return f"{detector} ({rank}AUROC {percent(view.mean('auroc', detector).value)})"


def normalise(scores: np.ndarray, id_scores: np.ndarray) -> np.ndarray:
    """``asinh((s - median_ID) / IQR_ID)``: monotone, the same scale for every detector.

    Detectors differ by orders of magnitude and some have very long tails; asinh is linear
    near the ID scores and logarithmic far away.
    """
    low, middle, high = np.quantile(id_scores, (0.25, 0.5, 0.75))
    scale = (high - low) or id_scores.std() or 1.0
    return np.arcsinh((scores - middle) / scale)


def _asinh_ticks(limits: tuple[float, float]) -> list[int]:
    """Ticks in ID interquartile ranges, none so close that their labels touch."""
    low, high = limits
    kept: list[int] = []
    for tick in sorted(_TICKS, key=abs):
        place = math.asinh(tick)
        free = all(abs(place - math.asinh(k)) > 0.17 * (high - low) for k in kept)
        if low < place < high and free:
            kept.append(tick)
    return kept


def fpr95_bars(inputs: FigureInputs) -> Figure:
    """One column of bars per OOD set, ordered by shift; detectors sorted by mean AUROC."""
    view = inputs.view
    names = len(max(view.detectors, key=len))
    letters = int((WIDTH - 0.08 * names) / len(view.sets) / 0.085)
    columns = {}
    for ood in view.sets:
        best = view.best("fpr95", ood)
        cells = {d: view.get("fpr95", d, ood) for d in view.detectors}
        columns[wrapped(ood, max(letters, 8))] = [
            Bar(
                100 * cell.value,
                100 * cell.low,
                100 * cell.high,
                text="" if math.isnan(cell.value) else percent(cell.value),
                colour=COLOURS[int(detector in best)],
                bold=detector in best,
            )
            for detector, cell in cells.items()
        ]
    figure, grid = bar_columns(columns, view.detectors, inputs.footer(fpr95=True))
    order = f", OOD sets {view.order}" if view.order else ""
    intervals = any(view.get("fpr95", d, s).has_interval for d in view.detectors for s in view.sets)
    grid[len(grid) // 2].set_xlabel(
        f"FPR95 in %{order}{', with 95% intervals' if intervals else ''}",
        x=0.5 if len(grid) % 2 else 0.0,  # of two in the middle, between them
    )
    return figure


def roc(inputs: FigureInputs) -> Figure:
    """One panel per OOD set, one line per detector."""

    def points(ood: str, detector: str) -> Points:
        of_id, of_ood = (inputs.scores_of(detector, name) for name in (ID_TEST, ood))
        return roc_curve(of_id, of_ood)[:2]

    footer = inputs.footer("Dotted: where FPR95 is read.", fpr95=True)
    labels = ("ID rejected in %", "OOD caught in %")
    sets = inputs.view.sets
    figure, grid = panels(
        list(sets),
        footer,
        height=2.15 if len(sets) > 2 else 2.6,
        columns=2 if len(sets) in (2, 4) else 3,
        extra=1.1,
        labels=labels,
        sharex=True,
        sharey=True,
    )
    for axes, ood in zip(grid, sets, strict=True):
        draw_lines(axes, inputs.lines(partial(points, ood)))
        axes.grid(visible=True)
        # The operating point of FPR95 lies on this line.
        line = axes.axhline if inputs.view.positive == "ood" else axes.axvline
        line(95 if inputs.view.positive == "ood" else 5, color=SOFT, lw=0.6, ls=(0, (1, 2)))
        axes.set(xlim=(-1, 101), ylim=(-1, 101), box_aspect=1)
        axes.set(xticks=[0, 25, 50, 75, 100], yticks=[0, 25, 50, 75, 100])
    add_legend(figure, grid)
    return figure
