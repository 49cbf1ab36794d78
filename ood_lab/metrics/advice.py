"""Which detector to take, chosen on one half of the images and reported on the other.

The best of many on the numbers that are shown looks better than it is. So the images of every set
are split at random into two halves; the first chooses, the second reports, and a detector is only
named where it is significantly better there than the baseline. Where the baseline is as good as
all others, a name is given in at most 2.5% of the splits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ood_lab.metrics.copies import photographs
from ood_lab.metrics.evaluation import Evaluation
from ood_lab.metrics.intervals import percentile_interval
from ood_lab.metrics.ood import Floats, auroc
from ood_lab.metrics.record import AUROC, FPR95_OOD_POSITIVE
from ood_lab.metrics.significance import bootstrap_p_values

#: Taken where nothing is significantly better (arXiv 1610.02136).
BASELINE = "msp"
#: Images on each side of each half, at least.
FEWEST_TO_CHOOSE = 20
_ALPHA = 0.05


@dataclass(frozen=True)
class Contrast:
    """A share, or the difference of two, with its 95% interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Advice:
    """Which detector to take.

    Attributes:
        detector: the one that the first half chose; :data:`BASELINE` where that is not
            significantly better on the second half.
        chosen: the one that the first half chose, in any case.
        runner_up: the second on the first half.
        gain: over the baseline, on the second half; None where the baseline was chosen.
        lead: over the runner-up, on the second half.
        cost: mean ``fpr95_ood_positive`` of ``detector`` on the second half: the share of ID
            that is rejected where 95% of OOD is caught.
        p_value: two-sided, of the gain.
        sets: OOD sets that the mean is over.
        beside: ``detector`` over the method that was to be compared with it, on the second half;
            None where there is none, or it is that.
        n_id: ID images of the second half.
        n_ood: OOD images of the second half.
        photographs: that the images of the second half are or are made of; None = all differ.
    """

    detector: str
    chosen: str
    runner_up: str
    gain: Contrast | None
    lead: Contrast
    cost: Contrast
    p_value: float
    sets: tuple[str, ...]
    n_id: int
    n_ood: int
    beside: Contrast | None = None
    photographs: int | None = None


def advise(evaluation: Evaluation, seed: int = 0, beside: str | None = None) -> Advice | None:
    """The detector to take, by the mean AUROC over the OOD sets.

    Args:
        evaluation: of all detectors; its draws and sets are used.
        seed: of the split into halves, and of the bootstrap on the second half.
        beside: a method that is compared with the one to take.

    Returns:
        None without the baseline, with one detector alone, or with fewer than
        :data:`FEWEST_TO_CHOOSE` images on a side of a half.
    """
    names, sets = evaluation.detectors, evaluation.mean_sets
    if BASELINE not in names or len(names) < 2 or not sets:
        return None
    rng = np.random.default_rng(seed)
    parts = [evaluation.id_rows, *(evaluation.rows_of(name) for name in sets)]
    if min(map(len, parts)) < 2 * FEWEST_TO_CHOOSE:
        return None
    halves = _halves(parts, rng)
    first, second = ([half[which] for half in halves] for which in (0, 1))
    if min(map(len, (*first, *second))) < FEWEST_TO_CHOOSE:
        return None
    ranking = _ranking(first, names)
    chosen, runner_up = ranking[0], ranking[1]
    compared = list(dict.fromkeys([chosen, runner_up, BASELINE, beside or BASELINE]))
    half = _half(evaluation, second, compared, seed)
    values, draws = half.mean("auroc", half.ood_names)
    p_values = bootstrap_p_values(values, draws)
    place = compared.index(BASELINE)
    made_of = half.made_of(*second[1:])
    smallest = min(len(second[0]), *half.sets.n_ood)
    gain = None if chosen == BASELINE else _contrast(values, draws, place, smallest)
    p_value = float(p_values[0, place])
    earned = gain is not None and gain.value > 0 and p_value < _ALPHA
    cost, cost_draws = half.mean("fpr95_ood_positive", half.ood_names)
    taken = 0 if earned else place
    low, high = percentile_interval(cost_draws, smallest)
    if low[taken] == high[taken]:  # draws that are all the same do not mean certainty
        every = half.places(half.ood_names)
        low, high = half.sets.mean_ends("fpr95_ood_positive", every, cost, cost_draws, half.n_id)
    other = compared.index(beside) if beside else taken
    return Advice(
        detector=chosen if earned else BASELINE,
        chosen=chosen,
        runner_up=runner_up,
        gain=gain,
        lead=_contrast(values, draws, 1, smallest),
        cost=Contrast(float(cost[taken]), float(low[taken]), float(high[taken])),
        p_value=p_value,
        sets=tuple(sets),
        n_id=len(second[0]),
        n_ood=sum(map(len, second[1:])),
        photographs=len(set(np.concatenate(made_of))) if made_of else None,
        beside=_contrast(values, draws, other, smallest, taken) if other != taken else None,
    )


def _halves(
    parts: Sequence[pd.DataFrame], rng: np.random.Generator
) -> list[tuple[pd.DataFrame, pd.DataFrame]]:
    """Both halves of every part; images of one photograph are in the same half of all parts."""
    names = photographs(pd.concat(parts))
    whole = np.arange(sum(map(len, parts))) if names is None else pd.factorize(names)[0]
    second = np.full(len(whole), -1)  # half of each photograph, once it is known
    halves = []
    for rows, photo in zip(parts, np.split(whole, np.cumsum([*map(len, parts)])[:-1]), strict=True):
        new = pd.unique(photo[second[photo] < 0])
        order = rng.permutation(len(new))
        second[new[order]] = np.arange(len(new)) >= len(new) // 2
        of_row = second[photo] == 1
        halves.append((rows[~of_row], rows[of_row]))
    return halves


def _ranking(parts: Sequence[pd.DataFrame], names: Sequence[str]) -> list[str]:
    """Detectors by mean AUROC, the best first; of equals the one that was named first."""
    id_rows, *ood = (part[list(names)].to_numpy(np.float64) for part in parts)
    means = [np.mean([auroc(i, rows[:, k]) for rows in ood]) for k, i in enumerate(id_rows.T)]
    return [names[place] for place in np.argsort(-np.array(means), kind="stable")]


def _half(
    evaluation: Evaluation, parts: Sequence[pd.DataFrame], names: Sequence[str], seed: int
) -> Evaluation:
    """These rows alone, of some detectors."""
    id_rows, *ood = parts
    rows = pd.concat([id_rows.assign(dataset="test"), *ood])
    metrics = (AUROC, FPR95_OOD_POSITIVE)  # AUPR, which nobody reads here, takes longer than both
    draws = evaluation.draws
    return Evaluation(rows, names, seed=seed, draws=draws, level_sets=(), metrics=metrics)


def _contrast(values: Floats, draws: Floats, other: int, n: int, one: int = 0) -> Contrast:
    """One detector, the first, against another."""
    low, high = percentile_interval(draws[one] - draws[other], n)
    return Contrast(float(values[one] - values[other]), float(low), float(high))
