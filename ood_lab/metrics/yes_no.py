"""Metrics of yes/no questions, and their intervals; the positive class is "yes".

Counts come as ``[..., 4]``: true positives, false positives, true negatives, false negatives.
They are pooled over questions, never averaged over sets.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ood_lab.metrics.intervals import percentile_interval
from ood_lab.metrics.ood import Floats

Counts = NDArray[np.int64]


class YesNo(NamedTuple):
    """A metric's value with its 95% interval."""

    value: float
    low: float
    high: float


def outcome_counts(truth: ArrayLike, answer: ArrayLike) -> Counts:
    """Which of TP, FP, TN, FN every answer is, ``[N, 4]`` with a single 1 in each row.

    Args:
        truth: ``[N]``, whether "yes" is right.
        answer: ``[N]``, whether "yes" was said.
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
    precision, recall = _share(tp, tp + fp), _share(tp, tp + fn)
    product = np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    values = {
        "accuracy": _share(tp + tn, total),
        "precision": precision,
        "recall": recall,
        "f1": _share(2 * precision * recall, precision + recall),
        "mcc": _share(tp * tn - fp * fn, product),
        "yes_rate": _share(tp + fp, total),
    }
    return {name: np.where(total > 0, value, np.nan) for name, value in values.items()}


def yes_no_intervals(counts: ArrayLike, draws: int = 1000, seed: int = 0) -> dict[str, YesNo]:
    """Pooled metrics with percentile intervals from resampling whole clusters.

    Args:
        counts: ``[K, 4]``, of the answers of each cluster (a question pair, an image): what
            belongs together is drawn together.
        draws: resamples of K clusters.
        seed: of the draws.
    """
    clusters = np.asarray(counts, np.int64).reshape(-1, 4)
    point = yes_no_metrics(clusters.sum(axis=0))
    if not len(clusters):
        return {name: YesNo(np.nan, np.nan, np.nan) for name in point}
    drawn = yes_no_metrics(resampled_sums(clusters, draws, np.random.default_rng(seed)))
    found = {}
    for name, value in point.items():
        low, high = percentile_interval(drawn[name], len(clusters))
        found[name] = YesNo(float(value), float(low), float(high))
    return found


def resampled_sums(rows: NDArray[np.int64], draws: int, rng: np.random.Generator) -> Counts:
    """Sums over ``len(rows)`` rows that are drawn with replacement, ``[draws, M]``.

    Rows that are equal need not be told apart: how often each kind is drawn is multinomial, which
    gives the very distribution of the bootstrap at a cost that does not grow with the rows.

    Args:
        rows: ``[K, M]``.
        draws: number of resamples.
        rng: of the draws.
    """
    kinds, sizes = _kinds(rows)
    return rng.multinomial(len(rows), sizes / len(rows), size=draws) @ kinds


def _kinds(rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Distinct rows and how often each occurs; rows as digits of one number sort much faster."""
    low = rows.min(axis=0)
    spans = [int(span) for span in rows.max(axis=0) - low + 1]
    if math.prod(spans) >= 2**62:
        return np.unique(rows, axis=0, return_counts=True)
    steps = np.array([math.prod(spans[:column]) for column in range(len(spans))], np.int64)
    _, first, sizes = np.unique((rows - low) @ steps, return_index=True, return_counts=True)
    return rows[first], sizes


def _share(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.zeros(np.broadcast(part, whole).shape), where=whole > 0)
