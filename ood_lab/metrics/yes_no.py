"""Metrics of yes/no questions; the positive class is "yes".

Counts come as ``[..., 4]``: true positives, false positives, true negatives, false negatives.
They are pooled over questions, never averaged over sets.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ood_lab.metrics.resampling.clustered_bootstrap import share
from ood_lab.schema.arrays import Floats, Ints

Counts = Ints


def outcome_counts(truth: ArrayLike, answer: ArrayLike) -> Counts:
    """The outcome of every answer, TP, FP, TN or FN: ``[N, 4]`` with a single 1 in each row.

    Args:
        truth: ``[N]``, whether "yes" is right.
        answer: ``[N]``, whether the answer is "yes".
    """
    true, said = np.asarray(truth, bool), np.asarray(answer, bool)
    return np.stack([true & said, ~true & said, ~true & ~said, true & ~said], axis=-1).astype(
        np.int64
    )


def yes_no_metrics(counts: ArrayLike) -> dict[str, Floats]:
    """Accuracy, precision, recall, F1, MCC and the rate of "yes" of counts ``[..., 4]``.

    ``P = TP / (TP + FP)``, ``R = TP / (TP + FN)``, ``F1 = 2 P R / (P + R)``,
    ``MCC = (TP TN - FP FN) / sqrt((TP + FP)(TP + FN)(TN + FP)(TN + FN))``,
    ``yes-rate = (TP + FP) / N``; 0 where a denominator is 0, NaN where there is no answer at all.

    Returns:
        Each ``[...]``, shares (the MCC from -1 to 1).
    """
    tp, fp, tn, fn = np.moveaxis(np.asarray(counts, np.float64), -1, 0)
    total = tp + fp + tn + fn
    precision, recall = share(tp, tp + fp), share(tp, tp + fn)
    product = np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    values = {
        "accuracy": share(tp + tn, total),
        "precision": precision,
        "recall": recall,
        "f1": share(2 * precision * recall, precision + recall),
        "mcc": share(tp * tn - fp * fn, product),
        "yes_rate": share(tp + fp, total),
    }
    return {name: np.where(total > 0, value, np.nan) for name, value in values.items()}
