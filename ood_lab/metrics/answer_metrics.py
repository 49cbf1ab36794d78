"""Metrics of answers: of yes/no questions (the positive class is "yes") and of captions.

Captions: CHAIR, Cover, Hal and Cog (arXiv 2311.07397) of counts ``[..., 8]``, see :data:`COUNTS`.
Counts of yes/no questions come as ``[..., 6]``: true positives, false positives, true negatives,
false negatives, and answers that say neither, where yes and where no was right. The last two are
wrong, but neither a yes nor a no; they may be left out (``[..., 4]``) where there are none.
Counts are pooled over questions or captions, never averaged over sets.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from ood_lab.metrics.resampling.clustered_bootstrap import share
from ood_lab.schema.arrays import Ints, MetricValues

Counts = Ints
#: Which questions recall is a share of: all whose right answer is yes, or those of them that were
#: answered by yes or no.
RecallOf = Literal["asked", "answered"]
#: The columns of counts with "no" as the positive class.
TURNED = [2, 3, 0, 1, 5, 4]


def outcome_counts(truth: ArrayLike, yes: ArrayLike, no: ArrayLike) -> Counts:
    """The outcome of every answer, one of six: ``[N, 6]`` with a single 1 in each row.

    Args:
        truth: ``[N]``, whether "yes" is right.
        yes: ``[N]``, whether the answer is "yes".
        no: ``[N]``, whether the answer is "no"; neither: it could not be read.
    """
    right, said_yes, said_no = (np.asarray(column, bool) for column in (truth, yes, no))
    neither = ~said_yes & ~said_no
    columns = [
        right & said_yes,
        ~right & said_yes,
        ~right & said_no,
        right & said_no,
        right & neither,
        ~right & neither,
    ]
    return np.stack(columns, axis=-1).astype(np.int64)


def yes_no_metrics(counts: ArrayLike, recall_of: RecallOf = "asked") -> MetricValues:
    """Accuracy, precision, recall, F1, MCC and the rate of "yes" of counts ``[..., 6]``.

    ``accuracy = (TP + TN) / N``, ``P = TP / (TP + FP)``, ``R = TP / n_yes`` with the number
    ``n_yes`` of questions whose right answer is yes (``answered``: ``TP / (TP + FN)``),
    ``F1 = 2 P R / (P + R)``, ``yes-rate = (TP + FP) / N``. MCC is ``R_K`` of Gorodkin (2004) with
    yes, no and neither as classes:
    ``(c N - sum_k p_k t_k) / sqrt((N^2 - sum_k p_k^2) (N^2 - sum_k t_k^2))`` with ``c`` right
    answers, ``p_k`` answers and ``t_k`` right answers of class k. Without unread answers it is
    ``(TP TN - FP FN) / sqrt((TP + FP)(TP + FN)(TN + FP)(TN + FN))``. 0 where a denominator is 0,
    NaN where there is no answer at all.

    Args:
        counts: see the module.
        recall_of: see :data:`RecallOf`.

    Returns:
        Each ``[...]``, shares (the MCC from -1 to 1).
    """
    tp, fp, tn, fn, *unread = np.moveaxis(np.asarray(counts, np.float64), -1, 0)
    lost_yes, lost_no = unread or (np.zeros_like(tp), np.zeros_like(tp))
    total = tp + fp + tn + fn + lost_yes + lost_no
    yes, no, true, false = tp + fp, tn + fn, tp + fn + lost_yes, tn + fp + lost_no
    precision, recall = share(tp, yes), share(tp, true if recall_of == "asked" else tp + fn)
    neither = lost_yes + lost_no
    spread = yes * no + (yes + no) * neither  # half of N^2 minus the squares of the three
    right = tp + tn
    values = {
        "accuracy": share(right, total),
        "precision": precision,
        "recall": recall,
        "f1": share(2 * precision * recall, precision + recall),
        "mcc": share((right * total - yes * true - no * false) / 2, np.sqrt(spread * true * false)),
        "yes_rate": share(yes, total),
    }
    return {name: np.where(total > 0, value, np.nan) for name, value in values.items()}


TWO_CLASS_METRICS = (
    "accuracy",
    "macro_precision",
    "macro_recall",
    "macro_f1",
    "yes_rate",
    "precision_yes",
    "recall_yes",
    "f1_yes",
    "precision_no",
    "recall_no",
    "f1_no",
)


def two_class_metrics(counts: ArrayLike) -> MetricValues:
    """Precision, recall and F1 of both answers, their plain means, accuracy and rate of "yes".

    ``P_yes = TP / (TP + FP)``, ``R_yes = TP / n_yes``, ``P_no = TN / (TN + FN)``,
    ``R_no = TN / n_no`` with the numbers ``n`` of questions whose right answer is yes or no;
    ``F1 = 2 P R / (P + R)``; macro = mean over the two answers; ``yes-rate = (TP + FP) / N``.
    (Equations 9 and 10 of arXiv 2509.15695 print P_no and R_no the other way round; its tables
    follow these.) 0 where a denominator is 0, NaN where there is no question at all.

    Returns:
        Each ``[...]``, shares.
    """
    yes, no = yes_no_metrics(counts), yes_no_metrics(np.asarray(counts)[..., TURNED])
    values = {name: yes[name] for name in ("accuracy", "yes_rate")}
    for name in ("precision", "recall", "f1"):
        values |= {f"{name}_yes": yes[name], f"{name}_no": no[name]}
        values[f"macro_{name}"] = (yes[name] + no[name]) / 2
    return {name: values[name] for name in TWO_CLASS_METRICS}


def mean_over_prompts(counts: ArrayLike) -> MetricValues:
    """The metrics of each wording, then their mean: ``[..., P, 6] -> [...]``.

    The mean of precisions is not the precision of pooled counts.
    """
    return {name: value.mean(axis=-1) for name, value in two_class_metrics(counts).items()}


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


def caption_metrics(counts: ArrayLike) -> MetricValues:
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
