"""Hallucination in captions: CHAIR, Cover, Hal and Cog (arXiv 2311.07397).

Counts come as ``[..., 8]`` in the order of :data:`COUNTS`. They are pooled over captions, never
averaged over sets.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ood_lab.metrics.resampling.clustered_bootstrap import share
from ood_lab.schema.arrays import Floats

#: Of a caption: hallucinated and all named objects; annotated objects that it names, and all of
#: them; tempting absent objects that it names, and all of them; 1 if it names no hallucinated
#: object; 1.
COUNTS = ("flagged", "nouns", "covered", "truth", "marked", "hallu", "clean", "captions")
CAPTION_METRICS = ("chair", "cover", "hal", "cog")
#: What AMBER's script starts its denominators with.
AMBER_EPSILON = 0.001
#: What is added to ``P + R`` in F1: by ODE for all questions and by AMBER for those of existence;
#: for others, AMBER adds 0.0001.
EXISTENCE_EPSILON = 0.001


def caption_metrics(counts: ArrayLike) -> dict[str, Floats]:
    """CHAIR, Cover, Hal and Cog of counts ``[..., 8]``.

    ``CHAIR = flagged / nouns`` (hallucinated among all named objects), ``Cover = covered / truth``,
    ``Hal = 1 - clean / captions`` (captions with a hallucinated object), ``Cog = marked / hallu``
    (named among the annotated tempting ones). NaN where the denominator is 0.

    Returns:
        Each ``[...]``, shares.
    """
    values = np.moveaxis(np.asarray(counts, np.float64), -1, 0)
    flagged, nouns, covered, truth, marked, hallu, clean, captions = values
    return {
        "chair": share(flagged, nouns, np.nan),
        "cover": share(covered, truth, np.nan),
        "hal": 1 - share(clean, captions, np.nan),
        "cog": share(marked, hallu, np.nan),
    }


def amber_caption_metrics(counts: ArrayLike) -> dict[str, float]:
    """The four as AMBER prints them: percent, one decimal, every denominator 0.001 too large.

    Args:
        counts: ``[8]``, pooled.
    """
    flagged, nouns, covered, truth, marked, hallu, clean, captions = map(float, np.asarray(counts))
    return {
        "chair": _percent(flagged, nouns),
        "cover": _percent(covered, truth),
        "hal": round(100 - clean / (captions + AMBER_EPSILON) * 100, 1),
        "cog": _percent(marked, hallu),
    }


def amber_yes_no_metrics(
    counts: ArrayLike, unread: int = 0, epsilon: float = EXISTENCE_EPSILON
) -> dict[str, float]:
    """Accuracy, precision, recall and F1 of "no" as AMBER prints them: percent, one decimal.

    ``F1 = 2 P R / (P + R + epsilon)`` of P and R that are rounded already.

    Args:
        counts: ``[4]``, pooled, with "no" as the positive class: TP, FP, TN, FN. A question whose
            right answer is no and whose answer is neither is a FN.
        unread: answers that are neither to questions whose right answer is yes; they are wrong.
        epsilon: see :data:`EXISTENCE_EPSILON`.
    """
    tp, fp, tn, fn = map(float, np.asarray(counts))
    precision, recall = _percent(tp, tp + fp), _percent(tp, tp + fn)
    return {
        "accuracy": _percent(tp + tn, tp + fp + tn + fn + unread),
        "precision": precision,
        "recall": recall,
        "f1": amber_f1(precision, recall, epsilon),
    }


def amber_f1(precision: float, recall: float, epsilon: float = EXISTENCE_EPSILON) -> float:
    """``2 P R / (P + R + epsilon)``, one decimal, of P and R in percent."""
    p, r = precision / 100, recall / 100
    return round(2 * p * r / (p + r + epsilon) * 100, 1)


def _percent(part: float, total: float) -> float:
    return round(part / (total + AMBER_EPSILON) * 100, 1)
