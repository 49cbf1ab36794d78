"""Metrics of yes/no questions for each of the two answers, over several wordings of a question.

Counts come as ``[..., 6]``: true positives, false positives, true negatives, false negatives
("yes" is positive), and answers that say neither, where yes and where no was right. The last two
are wrong, but they are neither a yes nor a no.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ood_lab.metrics.resampling.clustered_bootstrap import share
from ood_lab.schema.arrays import Floats, Ints

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
Counts = Ints


def two_class_counts(truth: ArrayLike, yes: ArrayLike, no: ArrayLike) -> Counts:
    """The outcome of every answer, one of six: ``[N, 6]`` with a single 1 in each row.

    Args:
        truth: ``[N]``, whether "yes" is right.
        yes: ``[N]``, whether the answer is "yes".
        no: ``[N]``, whether the answer is "no"; neither: the answer could not be matched.
    """
    right, said_yes, said_no = (np.asarray(each, bool) for each in (truth, yes, no))
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
    tp, fp, tn, fn, lost_yes, lost_no = np.moveaxis(np.asarray(counts, np.float64), -1, 0)
    total = tp + fp + tn + fn + lost_yes + lost_no
    values: dict[str, Floats] = {}
    for name, right, said, asked in (
        ("yes", tp, tp + fp, tp + fn + lost_yes),
        ("no", tn, tn + fn, tn + fp + lost_no),
    ):
        precision, recall = share(right, said), share(right, asked)
        values[f"precision_{name}"], values[f"recall_{name}"] = precision, recall
        values[f"f1_{name}"] = share(2 * precision * recall, precision + recall)
    for name in ("precision", "recall", "f1"):
        values[f"macro_{name}"] = (values[f"{name}_yes"] + values[f"{name}_no"]) / 2
    values["accuracy"], values["yes_rate"] = share(tp + tn, total), share(tp + fp, total)
    return {name: np.where(total > 0, values[name], np.nan) for name in TWO_CLASS_METRICS}


def mean_over_prompts(counts: ArrayLike) -> dict[str, Floats]:
    """The metrics of each wording, then their mean: ``[..., P, 6] -> [...]``.

    The mean of precisions is not the precision of pooled counts.
    """
    return {name: value.mean(axis=-1) for name, value in two_class_metrics(counts).items()}
