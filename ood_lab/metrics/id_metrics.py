"""ID metrics: mean average precision, accuracy of label levels, recall of labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from ood_lab.metrics.resampling.group_intervals import effective_size
from ood_lab.metrics.resampling.intervals import wilson_interval
from ood_lab.schema.arrays import Bools, Floats


def mean_average_precision(
    scores: ArrayLike, targets: ArrayLike, weights: ArrayLike | None = None
) -> Floats:
    """Mean over the classes of the average precision, ``sum_n (R_n - R_{n-1}) P_n``.

    n runs over the distinct scores from the largest, P_n and R_n are precision and recall of the
    images that score at least so much. The mean skips classes without an image.

    Args:
        scores: ``[N, C]``, higher = the class is there.
        targets: ``[N, C]``, true where it is.
        weights: of the images, ``[B, N]``, not negative; None = one row of ones.

    Returns:
        One value for each row of weights, ``[B]``; NaN where no class has an image.
    """
    s, y = np.asarray(scores, np.float64), np.asarray(targets, bool)
    w = np.ones((1, len(s))) if weights is None else np.asarray(weights, np.float64)
    precisions = []
    for column, there in zip(s.T, y.T, strict=True):
        order = np.argsort(-column, kind="stable")
        ends = np.flatnonzero(np.append(np.diff(column[order]) != 0, True))
        passed = w[:, order].cumsum(axis=1)[:, ends]
        right = (w[:, order] * there[order]).cumsum(axis=1)[:, ends]
        gained = np.diff(right, prepend=0.0, axis=1)
        with np.errstate(invalid="ignore"):  # no weight yet, or none at all
            precisions.append((gained * np.nan_to_num(right / passed)).sum(axis=1) / right[:, -1])
    defined = ~np.isnan(precisions)
    total = np.where(defined, precisions, 0.0).sum(axis=0)
    with np.errstate(invalid="ignore"):
        return total / defined.sum(axis=0)


HIERARCHY_COLUMNS = ["subset", "metric", "name", "n", "correct", "value", "ci_low", "ci_high"]
#: Subset of all images.
ALL = "all"


def hierarchy_table(
    labels: ArrayLike,
    predictions: ArrayLike,
    names: Sequence[str],
    subsets: Mapping[str, ArrayLike] | None = None,
    groups: ArrayLike | None = None,
) -> pd.DataFrame:
    """Overall accuracy and per-class recall of one level, for all images and for subsets of them.

    - ``accuracy`` = #(prediction = label) / n over the n labelled images (micro average).
    - ``recall`` of class c = #(prediction = label = c) / #(label = c), the "independent accuracy"
      of ShiftedBronzes (arXiv 2412.12683). It is not a precision: the divisor counts labels.

    Both with Wilson's 95% interval. Images without a label (< 0) are skipped.

    Args:
        labels: ``[N]`` integers, -1 = unknown.
        predictions: ``[N]`` integers; one outside the classes, such as -1, is wrong.
        names: of the classes, position = label.
        subsets: bool masks ``[N]`` by name, such as one per category.
        groups: of images that belong together, ``[N]``, for the intervals
            (:func:`~ood_lab.metrics.resampling.group_intervals.effective_size`); None = each is
            its own.

    Returns:
        Columns :data:`HIERARCHY_COLUMNS`, shares in [0, 1]: for each subset, ``all`` first, the
        accuracy (no ``name``), then the recall of every class. Without images, value and
        interval are NaN.

    Raises:
        ValueError: lengths differ, or a label is not a class.
    """
    label, prediction = np.asarray(labels), np.asarray(predictions)
    if label.shape != prediction.shape or label.ndim != 1:
        raise ValueError(f"expected two lists of one length, got {label.shape, prediction.shape}")
    if label.size and label.max() >= len(names):
        raise ValueError(f"label {label.max()} is none of the {len(names)} classes")
    right = (label == prediction).astype(np.float64)

    def share(rows: Bools) -> tuple[int, int, float, float, float]:
        """Images, those that are right, and their share with its interval."""
        hits, n = right[rows], int(rows.sum())
        if not n:
            return 0, 0, np.nan, np.nan, np.nan
        independent = effective_size(hits, None if groups is None else np.asarray(groups)[rows])
        value = hits.sum() / n
        return n, int(hits.sum()), value, *wilson_interval(value, independent)

    rows: list[tuple[object, ...]] = []
    for subset, mask in {ALL: np.ones(label.size, dtype=bool), **(subsets or {})}.items():
        inside = np.asarray(mask, dtype=bool) & (label >= 0)
        rows.append((subset, "accuracy", None, *share(inside)))
        of_classes = (inside & (label == c) for c in range(len(names)))
        rows += [
            (subset, "recall", name, *share(of_class))
            for name, of_class in zip(names, of_classes, strict=True)
        ]
    return pd.DataFrame(rows, columns=HIERARCHY_COLUMNS)
