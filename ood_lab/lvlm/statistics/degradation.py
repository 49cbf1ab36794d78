"""How much worse a model answers OOD pairs than ID pairs, and whether that is chance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.statistics.statistic_tables import Draws
from ood_lab.metrics.answer_metrics import yes_no_metrics
from ood_lab.metrics.resampling.clustered_bootstrap import resampled_sums
from ood_lab.schema.arrays import Floats, Ints

Counts = Ints
#: Metrics of the paper's signatures.
METRICS = ("accuracy", "f1", "precision", "recall", "mcc")
#: Draws whose weights are in memory at a time.
_AT_ONCE = 200


class Degradation(NamedTuple):
    """``Delta = T_ID - T_OOD`` of one metric.

    Attributes:
        value: of all pairs.
        low: lower end of the 95% percentile interval.
        high: upper end.
        p: one-sided permutation p-value of "no worse on OOD".
        drawn: ``resampled``, behind the interval, and ``permuted``, behind p.
    """

    value: float
    low: float
    high: float
    p: float
    drawn: Draws


class Tost(NamedTuple):
    """Is a model's degradation that of the open models?

    Attributes:
        delta: ``Delta - mu_open``.
        low: lower end of the 90% percentile interval.
        high: upper end.
        eta: margin.
        eta_resample: questions of the resamples that the margin comes from. The verdict depends
            on it.
        equivalent: the interval is within ``(-eta, eta)``.
        drawn: ``difference``, ``delta`` of every replicate.
    """

    delta: float
    low: float
    high: float
    eta: float
    eta_resample: int
    equivalent: bool
    drawn: Draws


def degradation(
    id_pairs: Counts, ood_pairs: Counts, resampling: Resampling
) -> dict[str, Degradation]:
    """The degradation of every metric of :data:`METRICS`.

    The permutation test shuffles which pairs are ID: ``p = (1 + #{Delta_b >= Delta}) / (B + 1)``.

    Args:
        id_pairs: of each question pair, ``[P, 6]``, see :mod:`ood_lab.metrics.answer_metrics`.
        ood_pairs: ``[Q, 6]``.
        resampling: B resamples and permutations, and the seed of both.
    """
    draws, rng = resampling.draws, np.random.default_rng(resampling.seed)
    observed = _differences(id_pairs.sum(0), ood_pairs.sum(0))
    sample = _differences(
        resampled_sums(id_pairs, draws, rng), resampled_sums(ood_pairs, draws, rng)
    )
    shuffled = _permuted(id_pairs, ood_pairs, draws, rng)
    results = {}
    for metric in METRICS:
        low, high = np.quantile(sample[metric], [0.025, 0.975])
        value = float(observed[metric])
        p = permutation_p(value, shuffled[metric])
        both = {"resampled": sample[metric], "permuted": shuffled[metric]}
        results[metric] = Degradation(value, float(low), float(high), p, both)
    return results


def permutation_p(observed: float, shuffled: Floats) -> float:
    """``(1 + #{Delta_b >= Delta_obs}) / (B + 1)``: never 0."""
    # Sums of the same counts in another order may differ in the last digit.
    exceeded = np.count_nonzero(shuffled >= observed - 1e-12)
    return float((1 + exceeded) / (len(shuffled) + 1))


def signature_tost(
    candidate: tuple[Counts, Counts],
    references: Mapping[str, tuple[Counts, Counts]],
    *,
    eta_resample: int = 100,
    resampling: Resampling,
) -> dict[str, Tost]:
    """Two one-sided tests of ``delta = Delta_c - mu_open`` against ``(-eta, eta)``, by metric.

    ``mu_open`` is the mean degradation of the references. The 90% interval resamples ID and OOD
    pairs once for each replicate, the same for all models. ``eta`` is the standard deviation of
    all references' replicates together, each of ``eta_resample`` questions.

    Args:
        candidate: counts of the ID and of the OOD pairs, ``[P, 6]`` and ``[Q, 6]``.
        references: the same of the open models, pairs in the same order.
        eta_resample: questions, ID and OOD each, of a replicate behind the margin.
        resampling: of the replicates.
    """
    everyone = [candidate, *references.values()]
    id_pairs, ood_pairs = (np.stack(side, axis=1) for side in zip(*everyone, strict=True))
    draws, rng = resampling.draws, np.random.default_rng(resampling.seed)
    point = _differences(id_pairs.sum(0), ood_pairs.sum(0))
    replicates = _replicates(id_pairs, ood_pairs, draws, rng)
    size = max(1, eta_resample // 2)
    of_eta = _replicates(id_pairs[:, 1:], ood_pairs[:, 1:], draws, rng, size)
    results = {}
    for metric in METRICS:
        sample = replicates[metric][:, 0] - replicates[metric][:, 1:].mean(axis=1)
        low, high = map(float, np.quantile(sample, [0.05, 0.95]))
        margin = float(of_eta[metric].std())
        results[metric] = Tost(
            delta=float(point[metric][0] - point[metric][1:].mean()),
            low=low,
            high=high,
            eta=margin,
            eta_resample=eta_resample,
            equivalent=within(low, high, margin),
            drawn={"difference": sample},
        )
    return results


def within(low: float, high: float, eta: float) -> bool:
    """Whether an interval is inside ``(-eta, eta)``."""
    return -eta < low and high < eta


def _differences(first: NDArray, second: NDArray) -> dict[str, Floats]:
    one, other = yes_no_metrics(first), yes_no_metrics(second)
    return {metric: one[metric] - other[metric] for metric in METRICS}


def _replicates(
    id_pairs: Counts,
    ood_pairs: Counts,
    draws: int,
    rng: np.random.Generator,
    size: int | None = None,
) -> dict[str, Floats]:
    """``Delta`` of every replicate and model, ``[draws, M]``; ``size`` pairs each, or all."""

    def sums(rows: Counts) -> Counts:
        share = np.full(len(rows), 1 / len(rows))
        parts = []
        for start in range(0, draws, _AT_ONCE):
            count = min(_AT_ONCE, draws - start)
            weights = rng.multinomial(size or len(rows), share, size=count)
            parts.append(np.tensordot(weights, rows, axes=1))
        return np.concatenate(parts)

    return _differences(sums(id_pairs), sums(ood_pairs))


def _permuted(
    id_pairs: Counts, ood_pairs: Counts, draws: int, rng: np.random.Generator
) -> dict[str, Floats]:
    """``Delta`` where pairs are ID or OOD by chance; equal pairs need not be distinguished."""
    everything = np.concatenate([id_pairs, ood_pairs])
    kinds, sizes = np.unique(everything, axis=0, return_counts=True)
    chosen = rng.multivariate_hypergeometric(sizes, len(id_pairs), size=draws)
    first = chosen @ kinds
    return _differences(first, everything.sum(0) - first)
