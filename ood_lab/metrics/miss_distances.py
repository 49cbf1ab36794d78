"""Do a detector's misses follow a measured distance?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import scipy  # loads scipy.optimize when it is used
from numpy.typing import ArrayLike

from ood_lab.metrics.resampling.clustered_bootstrap import resampled_sums
from ood_lab.metrics.resampling.group_intervals import photographs
from ood_lab.metrics.resampling.intervals import Estimate, percentile_interval
from ood_lab.metrics.resampling.significance import delong, placements, summed_variance
from ood_lab.metrics.verdict import BASELINE
from ood_lab.schema.arrays import Floats
from ood_lab.schema.image_columns import MADE_OF
from ood_lab.schema.results import Kind

#: Rows about what detectors miss.
KIND = Kind("miss_distance", "image", ("detector", "axis"))
#: Share of ID that is kept where an OOD image counts as missed.
KEPT = 0.95

#: Images that are missed, and that are noticed, at least.
FEWEST_OF_EACH = 10
#: Levels of distance, each with as many images; fewer where a level would have less than 20.
_LEVELS, _PER_LEVEL = 10, 20
_DRAWS = 200
_Z = 1.959964
#: Rank correlation of a score with a distance above which one is the other.
_ITSELF = 0.98


@dataclass(frozen=True)
class MissDistances:
    """How well a distance predicts what a detector misses.

    Attributes:
        nearer: share of the pairs of a missed and a detected image in which the missed one is
            nearer; 1/2 where the distance says nothing (an AUROC, DeLong's interval).
        beyond: the same among images that the baseline scores alike, by tenths of its score; None
            without a baseline.
        explained: R² of a curve that falls with the distance for the miss rates of the levels,
            see :func:`follow`; 0 where it predicts no better than their mean.
    """

    nearer: Estimate
    beyond: Estimate | None
    explained: Estimate


#: Of every detector and column of the degrees.
Misses = dict[tuple[str, str], MissDistances | None]


def follow(
    distance: ArrayLike,
    missed: ArrayLike,
    baseline: ArrayLike | None = None,
    seed: int = 0,
    made_of: ArrayLike | None = None,
) -> MissDistances | None:
    """Whether what is nearer to ID is missed more often.

    The images are sorted by distance into up to ten levels of equal size. Their miss rates, which
    are FPR95 by level where 95% of ID are kept, are predicted by an antitonic regression: fitted
    on a random half of the images of every level, it is judged on the other half, and the reverse,
    so that ``R² = 1 - sum (rate - predicted)² / sum (rate - mean)²`` is not raised by the freedom
    of the curve. Its interval is that of resampled images, in both halves apart.

    Args:
        distance: of the OOD images from ID, ``[n]``.
        missed: True where the detector misses it, ``[n]``.
        baseline: scores of another detector, ``[n]``.
        seed: of the halves and of the resampling.
        made_of: the photograph of each image, ``[n]``, whose images are resampled together.

    Returns:
        None with fewer than :data:`FEWEST_OF_EACH` missed or detected images.

    Raises:
        ValueError: a distance that is not finite, or lengths that differ.
    """
    far, miss = np.asarray(distance, np.float64), np.asarray(missed, bool)
    if far.shape != miss.shape or not np.isfinite(far).all():
        raise ValueError("distances have to be finite, and as many as there are images")
    if min(miss.sum(), (~miss).sum()) < FEWEST_OF_EACH:
        return None
    photos = None if made_of is None else np.asarray(made_of, object)
    beyond = None
    if baseline is not None:
        beyond = _nearer_pairs(far, miss, photos, _equal_levels(np.asarray(baseline, np.float64)))
    explained = _explained(far, miss, seed, photos)
    return MissDistances(_some(_nearer_pairs(far, miss, photos)), beyond, explained)


def missed(degrees: pd.DataFrame, scores: pd.DataFrame, detector: str) -> pd.DataFrame:
    """The OOD images with their degrees, ``missed`` by a detector or not, and the baseline's score.

    Missed is what scores at or below the 95% quantile of ID test, so that 95% of ID are kept.

    Args:
        degrees: ``dataset, index`` and degrees of every image.
        scores: ``dataset, index`` and a column per detector.
        detector: whose misses.
    """
    threshold = scores.loc[scores["dataset"] == "test", detector].quantile(KEPT)
    wanted = dict.fromkeys((detector, BASELINE, MADE_OF))
    ood = degrees[degrees["dataset"] != "test"]
    columns = [column for column in wanted if column in scores and column not in ood]
    rows = ood.merge(scores[["dataset", "index", *columns]], on=["dataset", "index"])
    return rows.assign(missed=rows[detector] <= threshold)


def follow_all(
    degrees: pd.DataFrame, scores: pd.DataFrame, detectors: Sequence[str], axes: Sequence[str]
) -> Misses:
    """:func:`follow` of the misses of every detector, by detector and column of the degrees.

    None where the score is itself that distance (rank correlation above 0.98): it explains its own
    misses whatever the data are. See :func:`missed` for the tables.
    """
    distances: Misses = {}
    for name in detectors:
        rows = missed(degrees, scores, name)
        baseline = rows[BASELINE] if name != BASELINE and BASELINE in rows else None
        for axis in axes:
            if rows[axis].corr(rows[name], method="spearman") > _ITSELF:
                distances[name, axis] = None
                continue
            made_of = photographs(rows)
            distances[name, axis] = follow(rows[axis], rows["missed"], baseline, made_of=made_of)
    return distances


def follow_results(distances: Misses, n: int, model: str, seed: int) -> pd.DataFrame:
    """A results table of the misses: see :class:`MissDistances`.

    Args:
        distances: see :func:`follow_all`.
        n: OOD images.
        model: whose features the detectors read.
        seed: of the run.
    """
    names = ("miss_distance_auroc", "miss_distance_auroc_given_msp", "miss_distance_r2")
    rows = []
    for (detector, axis), of in distances.items():
        values = (None,) * 3 if of is None else (of.nearer, of.beyond, of.explained)
        for metric, value in zip(names, values, strict=True):
            row = {"detector": detector, "axis": axis, "metric": metric, "n": n}
            if value is not None:
                row |= {"value": value.value, "ci_low": value.low, "ci_high": value.high}
            rows.append(row)
    return KIND.table(rows, model=model, seed=seed)


def miss_rates(distance: Floats, missed: np.ndarray) -> tuple[Floats, Floats, Floats, Floats]:
    """Median distance, number, miss rate, and antitonic regression of it, of every level."""
    levels = _equal_levels(distance)
    parts = [levels == level for level in np.unique(levels)]
    n = np.array([part.sum() for part in parts], np.float64)
    rates = np.array([missed[part].mean() for part in parts])
    medians = np.array([np.median(distance[part]) for part in parts])
    return medians, n, rates, _falling(rates, n)


def _equal_levels(values: Floats) -> np.ndarray:
    """Level of every value; equal values share one."""
    count = int(np.clip(len(values) // _PER_LEVEL, 2, _LEVELS))
    return np.searchsorted(np.quantile(values, np.arange(1, count) / count), values, side="left")


def _some(estimate: Estimate | None) -> Estimate:
    assert estimate is not None  # there are missed and noticed images
    return estimate


def _nearer_pairs(
    far: Floats,
    missed: np.ndarray,
    photos: np.ndarray | None,
    strata: np.ndarray | None = None,
) -> Estimate | None:
    """Share of the pairs in which the missed image is nearer, within strata where they are given.

    Weighted by their numbers of pairs; None where no stratum has two images of each. Photographs
    whose images are in several strata add up over them.
    """
    strata = np.zeros(len(far)) if strata is None else strata
    value = variance = pairs = 0.0
    rows, shares = [], []
    for group in (np.flatnonzero(strata == stratum) for stratum in np.unique(strata)):
        near, other = group[missed[group]], group[~missed[group]]
        if min(len(near), len(other)) >= 2:
            weight = float(len(near) * len(other))
            share, spread = delong(far[near], far[other])
            value += weight * share[0]
            variance += weight**2 * spread[0, 0]
            pairs += weight
            if photos is not None:
                rows += [near, other]
                shares += [weight * part for part in placements(far[near], far[other])]
    if not pairs:
        return None
    if photos is not None:
        variance = summed_variance(np.concatenate(shares)[None], photos[np.concatenate(rows)])[0, 0]
    value, half = value / pairs, _Z * np.sqrt(variance) / pairs
    return Estimate(float(value), float(max(value - half, 0)), float(min(value + half, 1)))


def _explained(
    far: Floats, missed: np.ndarray, seed: int, photos: np.ndarray | None = None
) -> Estimate:
    rng = np.random.default_rng(seed)
    levels = _equal_levels(far)
    names = np.unique(levels)
    half = np.empty(len(far), np.int64)
    for level in names:
        rows = np.flatnonzero(levels == level)
        for which, part in enumerate(np.array_split(rng.permutation(rows), 2)):
            half[part] = which
    cell = half * len(names) + np.searchsorted(names, levels)
    cells = 2 * len(names)
    n = np.bincount(cell, minlength=cells).reshape(2, -1).astype(np.float64)
    hits = np.bincount(cell, missed, minlength=cells).reshape(2, -1).astype(np.float64)
    if n.min() < 1:
        return Estimate(0.0, 0.0, 1.0)
    if photos is None:
        flags = rng.binomial(n.astype(int), hits / n, (_DRAWS, *n.shape)).astype(np.float64)
        draws = _judged(n, flags)
    else:
        codes, photographs = pd.factorize(photos)
        counts = np.zeros((len(photographs), 2, cells), np.int64)
        np.add.at(counts[:, 0], (codes, cell), 1)
        np.add.at(counts[:, 1], (codes, cell), missed.astype(np.int64))
        sums = resampled_sums(counts.reshape(len(photographs), -1), _DRAWS, rng)
        both = sums.reshape(_DRAWS, 2, 2, -1).astype(np.float64)
        both = both[both[:, 0].min(axis=(1, 2)) > 0]
        draws = _judged(both[:, 0], both[:, 1])
    low, high = percentile_interval(draws, len(far) if photos is None else len(photographs))
    return Estimate(float(_judged(n, hits[None])[0]), float(low), float(high))


def _judged(n: Floats, hits: Floats) -> Floats:
    """R² of each half's curve for the other, not below 0; of each draw, ``[draws, 2, cells]``."""
    n = np.broadcast_to(n, hits.shape)
    rates = hits / n
    halves = zip(*(array.reshape(-1, n.shape[-1]) for array in (rates, n)), strict=True)
    curves = np.reshape([_falling(of, count) for of, count in halves], n.shape)
    means = (rates * n).sum(-1, keepdims=True) / n.sum(-1, keepdims=True)
    wrong, total = ((n * (rates - of) ** 2).sum(-1)[:, ::-1] for of in (curves[:, ::-1], means))
    wrong, total = wrong[:, 0] + wrong[:, 1], total[:, 0] + total[:, 1]
    explained = 1 - np.divide(wrong, total, out=np.ones_like(wrong), where=total > 0)
    return np.maximum(explained, 0.0)


def _falling(rates: Floats, n: Floats) -> Floats:
    return np.asarray(scipy.optimize.isotonic_regression(rates, weights=n, increasing=False).x)
