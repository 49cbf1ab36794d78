"""Metrics of yes/no questions for each of the two answers, over several wordings of a question.

Counts come as ``[..., 6]``, see :mod:`ood_lab.metrics.yes_no`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ood_lab.metrics.yes_no import TURNED, yes_no_metrics
from ood_lab.schema.arrays import Floats

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


def two_class_metrics(counts: ArrayLike) -> dict[str, Floats]:
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


def mean_over_prompts(counts: ArrayLike) -> dict[str, Floats]:
    """The metrics of each wording, then their mean: ``[..., P, 6] -> [...]``.

    The mean of precisions is not the precision of pooled counts.
    """
    return {name: value.mean(axis=-1) for name, value in two_class_metrics(counts).items()}
