"""Tests: detectors with each other on every OOD set, and accuracies with chance."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy  # loads scipy.stats when it is used
from numpy.typing import ArrayLike

from ood_lab.metrics.best_set import drawn_means, mean_aurocs
from ood_lab.metrics.ood import SortedScores
from ood_lab.metrics.record import AUROC, Metric
from ood_lab.metrics.resampling.intervals import auroc_interval
from ood_lab.metrics.resampling.significance import (
    best_group,
    bootstrap_p_values,
    delong,
    delong_p_values,
    holm,
)
from ood_lab.metrics.score_evaluation import Evaluation
from ood_lab.metrics.verdict import CHANCE
from ood_lab.schema.arrays import Floats


def significance_of(evaluation: Evaluation) -> pd.DataFrame:
    """Two-sided tests between all pairs of detectors on the same samples.

    DeLong's test for the AUROC, the paired bootstrap for FPR95, AUPR, DAD and means over sets;
    p-values corrected by Holm over the pairs of one set and metric.

    Returns:
        ``dataset, metric, detector_a, detector_b, value_a, value_b, difference, test, p_value,
        p_holm``; ``dataset`` is None for ``dad``.
    """
    tests = []
    for (ood, begins), names in evaluation.comparisons.items():
        for metric in _tested(evaluation):
            # The draws of the sets share the ID images.
            values, draws, _, n_ood = evaluation.mean(metric.name, names)
            if ood is not None and metric is AUROC and min(evaluation.n_id, n_ood) > 1:
                rows = evaluation.rows_of(ood)
                p_values = delong_p_values(
                    *delong(evaluation.id_matrix, evaluation.matrix(rows), evaluation.made_of(rows))
                )
            else:
                p_values = bootstrap_p_values(values, draws)
            tests.append(_pairs(evaluation, ood, begins + metric.name, values, p_values))
    if evaluation.has_dad:
        values, draws = evaluation.dad()
        tests.append(_pairs(evaluation, None, "dad", values, bootstrap_p_values(values, draws)))
    return pd.concat(tests, ignore_index=True)


def best_detectors(evaluation: Evaluation) -> pd.DataFrame:
    """The detectors that are best, or not significantly worse than the best, on each set.

    Of an AUROC and of a mean over datasets it is the set of the best, see
    :class:`~ood_lab.metrics.best_set.JointEstimate`. None is best on datasets where the highest
    AUROC is not above chance.

    Returns:
        ``dataset, metric, detector, value, best``; ``dataset`` is None for means. Of metrics that
        rank.
    """
    rows = []
    for (ood, begins), names in evaluation.comparisons.items():
        aurocs = mean_aurocs(evaluation, names)
        low = aurocs.ends()[0] if ood is None else evaluation.mean("auroc", names).ends[0]
        lower = np.where(np.isnan(low), aurocs.values, low)  # of one image nothing is significant
        above = bool((lower > CHANCE).any()) or (ood is None and not aurocs.known)
        for metric in filter(lambda metric: metric.ranks, _tested(evaluation)):
            values, draws, *_ = evaluation.mean(metric.name, names)
            sign = -1 if metric.better == "lower" else 1
            if metric is AUROC:
                best = aurocs.best()
            elif ood is None:
                means = drawn_means(evaluation, metric.name, names)
                best = replace(means, values=sign * values).best()
            else:
                p_values = bootstrap_p_values(values, draws)
                best = best_group(values, p_values, higher_is_better=sign > 0)
            common = {"dataset": ood, "metric": begins + metric.name}
            rows += [
                {**common, "detector": d, "value": v, "best": above and bool(b)}
                for d, v, b in zip(evaluation.detectors, values, best, strict=True)
            ]
    return pd.DataFrame(rows, columns=["dataset", "metric", "detector", "value", "best"])


def _tested(evaluation: Evaluation) -> list[Metric]:
    """The metrics that detectors are tested by, AUROC first."""
    return [metric for metric in evaluation.named_metrics if metric.tested]


def _pairs(
    evaluation: Evaluation, ood: str | None, metric: str, values: Floats, p_values: Floats
) -> pd.DataFrame:
    names = np.array(evaluation.detectors, object)
    first, second = np.triu_indices(len(names), k=1)
    raw = p_values[first, second]
    return pd.DataFrame(
        {
            "dataset": ood,
            "metric": metric,
            "detector_a": names[first],
            "detector_b": names[second],
            "value_a": values[first],
            "value_b": values[second],
            "difference": values[first] - values[second],
            "test": "delong" if metric == "auroc" else "bootstrap",
            "p_value": raw,
            "p_holm": holm(raw),
        }
    )


def at_chance(accuracy: float, n: int, chance: float) -> bool:
    """True where ``accuracy`` over n images is no better than an answer that ignores the image.

    ``a <= p + 2 sqrt(p (1 - p) / n)``: not more than two standard errors above ``chance`` p; and,
    of few images, less than half of the way from there to 1. p is the share of the largest class
    among these images, which is what a network reaches that always names this class: 1 / C where
    all C classes are equally frequent. False where nothing can be said: no image, a single class
    (p = 1), or an accuracy that is NaN.
    """
    if n < 1 or not 0 < chance < 1:
        return False
    error = math.sqrt(chance * (1 - chance) / n)
    return accuracy <= chance + 2 * error and accuracy < (1 + chance) / 2


def flagged_p_value(flagged: int, n: int, false_alarms: int, held_out: int) -> float:
    r"""One-sided p-value of ``flagged`` or more of n images, against exchangeability with ID.

    The rule flags c = ``false_alarms`` of m = ``held_out`` ID images and x = ``flagged`` of n new
    ones: the c + x highest of all m + n scores. If all are exchangeable, the number of held-out
    images among them is hypergeometric, and

    ``p = P(H <= c),  H ~ Hypergeometric(m + n, m, c + x)``.

    - With a threshold that is made of the held-out images, their (c + 1)-th highest score, the
      false alarm rate is ``Beta(c + 1, m - c)``, the number flagged beta-binomial, and p is
      ``P(X >= x), X ~ BetaBinomial(n, c + 1, m - c)``: X >= x where at most c held-out images are
      among the c + x highest. Ties make it conservative.
    - With a threshold that does not depend on either group, p is that of Fisher's exact test.
    """
    positives = false_alarms + flagged
    return float(scipy.stats.hypergeom.cdf(false_alarms, held_out + n, held_out, positives))


class GroupComparison(NamedTuple):
    """How the new images compare with ID as a group.

    Attributes:
        exceeded: the share of ID images that a new one exceeds in the mean, which is the AUROC.
        ci_low: its 95% interval; NaN where a group has a single image.
        ci_high: see ``ci_low``.
        p_value: of a rank test.
    """

    exceeded: float
    ci_low: float
    ci_high: float
    p_value: float


def group_comparison(
    id_scores: ArrayLike,
    new_scores: ArrayLike,
    groups: tuple[ArrayLike, ArrayLike] | None = None,
) -> GroupComparison:
    """Whether new images score higher than ID images as a group, whatever the threshold.

    ``exceeded = P(new > ID) + P(new = ID) / 2``, its interval from DeLong's variance, and the
    one-sided p-value of Mann and Whitney's rank test (1947), exact of up to 8 images without ties.
    It is valid for scores ``[n]`` of held-out ID images and ``[m]`` of independent new ones;
    cross-fitted ID scores of detectors of neighbours, which are not lower than those of other ID
    images, make it cautious; docs/results/uncertainty.md has its measured rates.

    Where images belong together, each group has weight one in ``exceeded``, DeLong's variance is
    that of the groups' means of the placements, and the rank test compares the groups' mean ranks.
    It is then valid for exchangeable groups.

    Args:
        id_scores: ``[n]``.
        new_scores: ``[m]``.
        groups: of the ID and of the new images, ``[n]`` and ``[m]``; None = each is its own.

    Raises:
        ValueError: an empty array or NaN.
    """
    if groups is not None:
        return _compared_by_group(id_scores, new_scores, groups)
    scores = SortedScores.of(id_scores, new_scores)
    exceeded, n = scores.auroc(), min(scores.id.size, scores.ood.size)
    deviation = 0.0
    if n > 1:
        deviation = math.sqrt(max(delong(scores.id, scores.ood)[1].item(), 0.0))
    return _comparison(exceeded, deviation, n, scores.ood, scores.id, scores.constant)


def _comparison(
    exceeded: float, deviation: float, n: int, new: Floats, of_id: Floats, constant: bool
) -> GroupComparison:
    """With the interval of an AUROC of this standard deviation, and the test of the ranks."""
    low, high = auroc_interval(exceeded, [exceeded - deviation, exceeded + deviation], n)
    p = scipy.stats.mannwhitneyu(new, of_id, alternative="greater").pvalue
    return GroupComparison(exceeded, float(low), float(high), 1.0 if constant else float(p))


def _compared_by_group(
    id_scores: ArrayLike, new_scores: ArrayLike, groups: tuple[ArrayLike, ArrayLike]
) -> GroupComparison:
    """:func:`group_comparison` of groups."""
    id_values, new = (np.asarray(scores, np.float64) for scores in (id_scores, new_scores))
    codes = [pd.factorize(np.asarray(names))[0] for names in groups]
    sizes = [np.bincount(of_side) for of_side in codes]
    of_own, of_new = (1 / size[code] for size, code in zip(sizes, codes, strict=True))

    def means(values: Floats, side: int) -> Floats:
        return np.bincount(codes[side], values) / sizes[side]

    above = means(_weight_below(id_values, new, of_own), 1) / len(sizes[0])
    below = 1 - means(_weight_below(new, id_values, of_new), 0) / len(sizes[1])
    exceeded, n = float(above.mean()), min(map(len, sizes))
    deviation = 0.0
    if n > 1:
        deviation = math.sqrt(above.var(ddof=1) / len(above) + below.var(ddof=1) / len(below))
    everything, weights = np.concatenate([id_values, new]), np.concatenate([of_own, of_new])
    # Rounded, for equal scores must stay tied.
    of_id, of_others = (
        means(_weight_below(everything, side, weights), place).round(9)
        for place, side in enumerate((id_values, new))
    )
    constant = bool(np.ptp(everything) == 0)
    return _comparison(exceeded, deviation, n, of_others, of_id, constant)


def _weight_below(scores: Floats, of: Floats, weights: Floats) -> Floats:
    """The weight of the scores below each of others, ties counting half."""
    order = np.argsort(scores)
    sums = np.append(0, weights[order].cumsum())
    ends = [np.searchsorted(scores[order], of, side) for side in ("left", "right")]
    return (sums[ends[0]] + sums[ends[1]]) / 2
