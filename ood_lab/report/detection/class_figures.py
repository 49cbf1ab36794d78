"""Figures of the ID classes: what they are taken for, and how many images they have."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ood_lab.metrics import wilson_interval
from ood_lab.report.detection.figure_inputs import FigureInputs
from ood_lab.report.figures.bars import Bar, bar_panels, draw_bars, name_rows
from ood_lab.report.figures.heatmap import draw_cells, shades
from ood_lab.report.figures.layout import new_figure, short_names
from ood_lab.report.rendering.blocks import PlannedFigure

_MAX_CLASSES = 30
_MAX_ANNOTATED = 16
_MOST_NAMES = 30
_LETTER = 0.075  # inches, of the names of classes
_MATRIX = 3.2  # about its width in inches


def confusion_counts(labels: np.ndarray, predictions: np.ndarray, n: int) -> np.ndarray:
    """Counts ``[C, C]``, row = label, column = prediction."""
    return np.bincount(labels * n + predictions, minlength=n * n).reshape(n, n)


def confusion(inputs: FigureInputs) -> Figure | None:
    """Confusion matrix in % of the label, next to the accuracy of each class.

    None without ID labels. Of more than 30 classes the 30 with the lowest accuracy are shown.
    """
    test = inputs.labelled
    if test.empty:
        return None
    labels, predictions = test["label"].to_numpy(int), test["pred"].to_numpy(int)
    n = max(labels.max(), predictions.max(), len(inputs.classes) - 1) + 1
    counts = confusion_counts(labels, predictions, n)
    class_names = [inputs.classes[i] if i < len(inputs.classes) else str(i) for i in range(n)]
    shown = _shown(counts)
    names = [short_names(class_names)[i] for i in shown]
    longest = max(map(len, names))
    upright = longest * _LETTER > _MATRIX / len(shown)
    height = 0.2 * max(len(shown), 6) + (_LETTER * longest if upright else 0.1) + 0.9
    figure = new_figure(height, inputs.footer("Matrix: % of the ID test images of a class (row)."))
    left, right = figure.subplots(1, 2, width_ratios=(1.6, 1))
    rows = counts[shown]
    share = 100 * rows[:, shown] / np.maximum(rows.sum(axis=1, keepdims=True), 1)
    few = len(shown) <= _MAX_ANNOTATED
    texts = [[f"{v:.0f}" if few and v >= 0.5 else "" for v in row] for row in share]
    draw_cells(left, shades(0, 100, "Blues").of(share), (names, names), texts)
    left.tick_params(labelsize=6.5)
    left.tick_params(axis="x", rotation=90 if upright else 0)
    left.set(xlabel="predicted class", ylabel="class")
    draw_bars(
        right, [_accuracy(int(counts[i, i]), int(counts[i].sum())) for i in shown], text_at=104
    )
    name_rows(right, names, named=False)
    right.set(xlim=(0, 160), xticks=[0, 50, 100], xlabel="accuracy in %, with 95% intervals")
    if len(shown) < n:
        left.set_title(f"the {len(shown)} classes with the lowest accuracy, of {n}", fontsize=7)
    return figure


def _accuracy(correct: int, total: int) -> Bar:
    if not total:
        return Bar(math.nan, text="n=0")
    share = correct / total
    low, high = wilson_interval(share, total)
    return Bar(100 * share, 100 * low, 100 * high, f"{100 * share:.1f}  n={total}")


def _shown(counts: np.ndarray) -> np.ndarray:
    totals = counts.sum(axis=1)
    accuracy = np.where(totals > 0, counts.diagonal() / np.maximum(totals, 1), np.inf)
    return np.sort(np.argsort(accuracy, kind="stable")[:_MAX_CLASSES])


def count_figures(counts: pd.DataFrame) -> Iterator[PlannedFigure]:
    """One figure a label: images of its names by category, of ID and of every OOD dataset.

    Args:
        counts: ``label, name, category, dataset, images``, a row per count.
    """
    sets = counts["dataset"].replace(dict.fromkeys(("train", "val", "test"), "ID"))
    keys = ["label", "name", "category", "dataset"]
    sums = counts.assign(dataset=sets).groupby(keys, sort=False)["images"].sum().reset_index()
    for label, rows in sums.groupby("label", sort=False):
        caption = f"Images of each {label}, by category where it is known."
        title = f"Images by {label}"
        yield PlannedFigure(f"counts_{label}", title, caption, partial(_counted, rows))


def _counted(rows: pd.DataFrame) -> Figure:
    sizes = rows.groupby("name", sort=False)["images"].sum()
    label = str(rows["label"].iloc[0])
    # Classes and their levels have an order of their own, such as that of time.
    if len(sizes) > _MOST_NAMES or label in ("attribute", "category", "folder", "shape"):
        sizes = sizes.sort_values(ascending=False, kind="stable")
    shown = {str(name): str(name) for name in sizes.index[:_MOST_NAMES]}
    rows = rows[rows["name"].isin(list(shown))]
    rows = rows.assign(category="") if label == "category" else rows
    categories = {str(c): str(c) or "unknown" for c in rows["category"].unique()}
    categories = {"": ""} if [*categories] == [""] else categories
    titles = {str(name): f"{name}: images" for name in rows["dataset"].unique()}
    left = len(sizes) - len(shown)
    footer = f"The {len(shown)} most frequent of {len(sizes)}." if left else "ID: all splits."
    keys = ["dataset", "name", "category"]
    wide = rows.set_index(keys)["images"].unstack(keys[1:], fill_value=0)
    rows = wide.melt(ignore_index=False).reset_index().assign(ci_low=math.nan, ci_high=math.nan)
    figure = bar_panels(
        rows,
        titles,
        shown,
        footer,
        panel="dataset",
        row="name",
        series=("category", categories),
        factor=1.0,
        numbers=",.0f",
    )
    for axes in figure.axes:
        axes.set_xlim(left=0)
    return figure
