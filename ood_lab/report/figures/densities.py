"""Score densities of ID against each OOD set."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ood_lab.report.figures.inputs import FigureInputs
from ood_lab.report.figures.style import (
    ID_COLOUR,
    LINES,
    label_outer,
    legend_columns,
    panels,
    style,
)
from ood_lab.report.protocol import percent

_BINS = 256
_TICKS = (-1000, -100, -10, -1, 0, 1, 10, 100, 1000, 10_000)


def normalise(scores: np.ndarray, id_scores: np.ndarray) -> np.ndarray:
    """``asinh((s - median_ID) / IQR_ID)``: monotone, the same scale for every detector.

    Detectors differ by orders of magnitude and some have very long tails; asinh is linear
    near the ID scores and logarithmic far away.
    """
    low, middle, high = np.quantile(id_scores, (0.25, 0.5, 0.75))
    scale = (high - low) or id_scores.std() or 1.0
    return np.arcsinh((scores - middle) / scale)


def density(values: np.ndarray, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian kernel density on a grid, by smoothing a histogram (Scott's bandwidth)."""
    counts, edges = np.histogram(values, bins=_BINS, range=(low, high))
    step = edges[1] - edges[0]
    bandwidth = max(values.std() * len(values) ** -0.2 / step, 1.5)
    reach = np.arange(1 - _BINS // 2, _BINS // 2)
    kernel = np.exp(-0.5 * (reach / bandwidth) ** 2)
    smooth = np.convolve(counts, kernel / kernel.sum(), mode="same")
    return (edges[:-1] + edges[1:]) / 2, smooth / (len(values) * step)


def densities(inputs: FigureInputs) -> Figure:
    """One panel per detector, in the order of the table; ID filled, OOD sets as lines."""
    sets, detectors = inputs.view.sets, inputs.view.detectors
    note = "Scores in ID interquartile ranges from the ID median (asinh scale), higher = more OOD."
    figure, grid = panels(len(detectors), 3, 1.25, inputs.footer(note), extra=1.1)
    for axes, detector in zip(grid, detectors, strict=True):
        _panel(axes, inputs, detector)
    labels = ["ID test", *sets]
    figure.legend(
        *grid[0].get_legend_handles_labels(),
        loc="outside upper center",
        ncols=legend_columns(labels),
    )
    label_outer(grid, 3, "score", "density")
    return figure


def _panel(axes: Axes, inputs: FigureInputs, detector: str) -> None:
    id_scores = inputs.scores_of(detector, inputs.id_dataset)
    names = [inputs.id_dataset, *inputs.view.sets]
    parts = {n: normalise(inputs.scores_of(detector, n), id_scores) for n in names}
    low = min(float(np.quantile(p, 0.005)) for p in parts.values())
    high = max(float(np.quantile(p, 0.995)) for p in parts.values())
    margin = 0.08 * (high - low) or 1.0
    low, high = low - margin, high + margin
    for position, (name, values) in enumerate(parts.items()):
        x, y = density(values, low, high)
        if name == inputs.id_dataset:
            axes.fill_between(x, y, color=ID_COLOUR, alpha=0.6, lw=0, label="ID test")
        else:
            look = style(position - 1)
            # Lines differ from set to set, so that they are told apart in grey print, too.
            dash = LINES[(position - 1) % len(LINES)]
            axes.plot(x, y, color=look.color, ls=dash, lw=1.1, label=name)
    dad = inputs.view.get("dad", detector).value
    rank = "" if math.isnan(dad) else f"DAD {dad:.0f}, "
    title = f"{detector} ({rank}AUROC {percent(inputs.view.mean('auroc', detector).value)})"
    axes.set_title(title, fontsize=7, pad=2)
    axes.set_xlim(low, high)
    axes.set_ylim(bottom=0)
    _ticks(axes, low, high)


def _ticks(axes: Axes, low: float, high: float) -> None:
    """Ticks in ID interquartile ranges, none so close that their labels touch."""
    kept: list[float] = []
    for tick in sorted(_TICKS, key=abs):
        place = math.asinh(tick)
        free = all(abs(place - math.asinh(k)) > 0.17 * (high - low) for k in kept)
        if low < place < high and free:
            kept.append(tick)
    axes.set_xticks([math.asinh(k) for k in kept], [f"{k:,}".replace("-", "−") for k in kept])
    axes.set_yticks([])
    axes.grid(visible=False, axis="y")
