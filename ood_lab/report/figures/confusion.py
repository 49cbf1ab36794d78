"""Which ID classes are confused, and the accuracy of each."""

from __future__ import annotations

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ood_lab.metrics import wilson_interval
from ood_lab.report.figures.inputs import FigureInputs
from ood_lab.report.figures.style import COLOURS, INK, new_figure, short_names, text_on
from ood_lab.report.protocol import MISSING

_MAX_CLASSES = 30
_MAX_ANNOTATED = 16
_LETTER = 0.075  # inches, of the names
_MATRIX = 3.2  # about its width in inches


def confusion_counts(labels: np.ndarray, predictions: np.ndarray, n: int) -> np.ndarray:
    """Counts ``[C, C]``, row = label, column = prediction."""
    return np.bincount(labels * n + predictions, minlength=n * n).reshape(n, n)


def confusion(inputs: FigureInputs) -> Figure | None:
    """Confusion matrix in % of the label beside the accuracy of each class.

    None without ID labels. Of more than 30 classes the 30 with the lowest accuracy are shown.
    """
    test = inputs.test[inputs.test["label"] >= 0]
    if test.empty:
        return None
    labels, predictions = test["label"].to_numpy(int), test["pred"].to_numpy(int)
    n = max(labels.max(), predictions.max(), len(inputs.classes) - 1) + 1
    counts = confusion_counts(labels, predictions, n)
    names = short_names(
        [inputs.classes[i] if i < len(inputs.classes) else str(i) for i in range(n)]
    )
    shown = _shown(counts)
    longest = max(len(names[i]) for i in shown)
    upright = longest * _LETTER > _MATRIX / len(shown)
    height = 0.2 * max(len(shown), 6) + (_LETTER * longest if upright else 0.1) + 0.9
    footer = inputs.footer("Matrix: % of the ID test images of a class (row).")
    figure = new_figure(height, footer)
    left, right = figure.subplots(1, 2, width_ratios=(1.6, 1), sharey=True)
    _matrix(left, counts[shown], shown, [names[i] for i in shown], upright)
    _accuracies(right, counts, shown)
    if len(shown) < n:
        left.set_title(f"the {len(shown)} classes with the lowest accuracy, of {n}", fontsize=7)
    return figure


def _shown(counts: np.ndarray) -> np.ndarray:
    if len(counts) <= _MAX_CLASSES:
        return np.arange(len(counts))
    totals = counts.sum(axis=1)
    accuracy = np.where(totals > 0, counts.diagonal() / np.maximum(totals, 1), np.inf)
    return np.sort(np.argsort(accuracy, kind="stable")[:_MAX_CLASSES])


def _matrix(
    axes: Axes, rows: np.ndarray, shown: np.ndarray, names: list[str], upright: bool
) -> None:
    share = 100 * rows / np.maximum(rows.sum(axis=1, keepdims=True), 1)
    cells = share[:, shown]
    colours = matplotlib.colormaps["Blues"]
    axes.imshow(cells, cmap=colours, vmin=0, vmax=100, aspect="auto")
    if len(shown) <= _MAX_ANNOTATED:
        for (row, column), value in np.ndenumerate(cells):
            if value >= 0.5:
                ink = text_on(colours(value / 100)[:3])
                axes.text(
                    column, row, f"{value:.0f}", ha="center", va="center", fontsize=6, color=ink
                )
    axes.set_xticks(range(len(shown)), names, rotation=90 if upright else 0)
    axes.set_yticks(range(len(shown)), names)
    axes.tick_params(labelsize=6.5, length=0)
    axes.set_xlabel("predicted class")
    axes.set_ylabel("class")
    axes.grid(visible=False)


def _accuracies(axes: Axes, counts: np.ndarray, shown: np.ndarray) -> None:
    for row, label in enumerate(shown):
        total, correct = int(counts[label].sum()), int(counts[label, label])
        if total == 0:
            axes.text(2, row, f"{MISSING}  n=0", va="center", fontsize=6, color="#666666")
            continue
        low, high = wilson_interval(correct / total, total)
        axes.barh(row, 100 * correct / total, height=0.7, color=COLOURS[0], alpha=0.85)
        axes.plot([100 * low, 100 * high], [row, row], color=INK, lw=0.7)
        text = f"{100 * correct / total:.1f}  n={total}"
        axes.text(104, row, text, va="center", fontsize=6)
    axes.set_xlim(0, 160)
    axes.set_xticks([0, 50, 100])
    axes.set_xlabel("accuracy in %, with 95% intervals")
    axes.tick_params(axis="y", labelleft=False, length=0)
    axes.grid(visible=False, axis="y")
