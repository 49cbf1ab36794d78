"""Tests of whether an accuracy, or a number of flagged images, is more than chance."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy  # loads scipy.stats when it is used
from numpy.typing import ArrayLike

from ood_lab.metrics.ood import SortedScores
from ood_lab.metrics.resampling.intervals import auroc_interval
from ood_lab.metrics.resampling.significance import delong
from ood_lab.schema.arrays import Floats


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

    Raises:
        ValueError: counts out of range.
    """
    if not (0 <= flagged <= n and 0 <= false_alarms <= held_out and held_out > 0):
        raise ValueError(f"{flagged} of {n} and {false_alarms} of {held_out} are no counts")
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
    low, high = auroc_interval(exceeded, [exceeded - deviation, exceeded + deviation], n)
    p = scipy.stats.mannwhitneyu(scores.ood, scores.id, alternative="greater").pvalue
    p_value = 1.0 if scores.constant else float(p)
    return GroupComparison(exceeded, float(low), float(high), p_value)


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
    low, high = auroc_interval(exceeded, [exceeded - deviation, exceeded + deviation], n)
    everything, weights = np.concatenate([id_values, new]), np.concatenate([of_own, of_new])
    # Rounded, for equal scores must stay tied.
    ranks = (
        means(_weight_below(everything, side, weights), place).round(9)
        for place, side in enumerate((id_values, new))
    )
    id_ranks, new_ranks = ranks
    p = scipy.stats.mannwhitneyu(new_ranks, id_ranks, alternative="greater").pvalue
    p_value = 1.0 if np.ptp(everything) == 0 else float(p)
    return GroupComparison(exceeded, float(low), float(high), p_value)


def _weight_below(scores: Floats, of: Floats, weights: Floats) -> Floats:
    """The weight of the scores below each of others, ties counting half."""
    order = np.argsort(scores)
    sums = np.append(0, weights[order].cumsum())
    ends = [np.searchsorted(scores[order], of, side) for side in ("left", "right")]
    below: Floats = (sums[ends[0]] + sums[ends[1]]) / 2
    return below
