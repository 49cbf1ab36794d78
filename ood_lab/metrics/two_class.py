"""Metrics of yes/no questions for each of the two answers, over several wordings of a question.

Counts come as ``[..., 6]``: true positives, false positives, true negatives, false negatives
("yes" is positive), and answers that say neither, where yes and where no was right. The last two
are wrong, but they are neither a yes nor a no.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ood_lab.metrics.intervals import percentile_interval
from ood_lab.metrics.ood import Floats
from ood_lab.metrics.yes_no import YesNo, resampled_sums

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
Counts = NDArray[np.int64]
#: Columns of a row of counts.
OUTCOMES = 6


def two_class_counts(truth: ArrayLike, yes: ArrayLike, no: ArrayLike) -> Counts:
    """Which of the six outcomes every answer is, ``[N, 6]`` with a single 1 in each row.

    Args:
        truth: ``[N]``, whether "yes" is right.
        yes: ``[N]``, whether "yes" was said.
        no: ``[N]``, whether "no" was said; neither: the answer could not be matched.
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
        precision, recall = _share(right, said), _share(right, asked)
        values[f"precision_{name}"], values[f"recall_{name}"] = precision, recall
        values[f"f1_{name}"] = _share(2 * precision * recall, precision + recall)
    for name in ("precision", "recall", "f1"):
        values[f"macro_{name}"] = (values[f"{name}_yes"] + values[f"{name}_no"]) / 2
    values["accuracy"], values["yes_rate"] = _share(tp + tn, total), _share(tp + fp, total)
    return {name: np.where(total > 0, values[name], np.nan) for name in TWO_CLASS_METRICS}


def mean_over_prompts(counts: ArrayLike) -> dict[str, Floats]:
    """The metrics of each wording, then their mean: ``[..., P, 6] -> [...]``.

    The mean of precisions is not the precision of pooled counts.
    """
    return {name: value.mean(axis=-1) for name, value in two_class_metrics(counts).items()}


def clustered_draws(
    counts: ArrayLike, draws: int = 1000, seed: int = 0
) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Means over wordings, and those of resamples that draw whole clusters.

    Args:
        counts: ``[K, P, 6]``, of K clusters (images), or ``[K, M, P, 6]`` of M models that
            answered the same questions and are resampled together.
        draws: resamples of K clusters.
        seed: of the draws.

    Returns:
        By metric: the value, a number or ``[M]``, and the draws, ``[B]`` or ``[M, B]``.
    """
    clusters = np.asarray(counts, np.int64)
    shape = clusters.shape[1:]
    flat = clusters.reshape(len(clusters), -1)
    rng = np.random.default_rng(seed)
    drawn = resampled_sums(flat, draws, rng).reshape(draws, *shape)
    found = mean_over_prompts(drawn)
    return mean_over_prompts(clusters.sum(axis=0)), {
        k: np.moveaxis(v, 0, -1) for k, v in found.items()
    }


def two_class_intervals(counts: ArrayLike, draws: int = 1000, seed: int = 0) -> dict[str, YesNo]:
    """Means over wordings with 95% percentile intervals that resample whole clusters.

    Args:
        counts: ``[K, P, 6]``, of K clusters and P wordings.
        draws: resamples.
        seed: of the draws.
    """
    if not len(np.asarray(counts)):
        return {name: YesNo(np.nan, np.nan, np.nan) for name in TWO_CLASS_METRICS}
    values, drawn = clustered_draws(counts, draws, seed)
    found = {}
    for name, value in values.items():
        low, high = percentile_interval(drawn[name], len(np.asarray(counts)))
        found[name] = YesNo(float(value), float(low), float(high))
    return found


def _share(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.zeros(np.broadcast(part, whole).shape), where=whole > 0)
