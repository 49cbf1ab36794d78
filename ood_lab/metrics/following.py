"""Do a detector's misses follow a measured distance?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.optimize import isotonic_regression

from ood_lab.metrics.advice import BASELINE, Contrast
from ood_lab.metrics.intervals import percentile_interval
from ood_lab.metrics.ood import Floats
from ood_lab.metrics.significance import delong
from ood_lab.results import Kind

#: Rows about what detectors miss.
KIND = Kind("misses", "image", ("detector", "axis"))
#: Share of ID that is kept where an OOD image counts as missed.
KEPT = 0.95

#: Images that are missed, and that are noticed, at least.
FEWEST_OF_EACH = 10
#: Levels of distance, each with as many images; fewer where a level would have less than 20.
_LEVELS, _PER_LEVEL = 10, 20
_DRAWS = 200
_Z = 1.959964


@dataclass(frozen=True)
class Following:
    """How well a distance predicts what a detector misses.

    Attributes:
        nearer: share of the pairs of a missed and a noticed image in which the missed one is
            nearer; 1/2 where the distance says nothing (an AUROC, DeLong's interval).
        beyond: the same among images that the baseline scores alike, by tenths of its score; None
            without a baseline.
        explained: R² of a curve that falls with the distance for the miss rates of the levels,
            see :func:`follow`; 0 where it predicts no better than their mean.
    """

    nearer: Contrast
    beyond: Contrast | None
    explained: Contrast


def follow(
    distance: ArrayLike, missed: ArrayLike, baseline: ArrayLike | None = None, seed: int = 0
) -> Following | None:
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

    Returns:
        None with fewer than :data:`FEWEST_OF_EACH` missed or noticed images.

    Raises:
        ValueError: a distance that is not finite, or lengths that differ.
    """
    far, miss = np.asarray(distance, np.float64), np.asarray(missed, bool)
    if far.shape != miss.shape or not np.isfinite(far).all():
        raise ValueError("distances have to be finite, and as many as there are images")
    if min(miss.sum(), (~miss).sum()) < FEWEST_OF_EACH:
        return None
    beyond = None
    if baseline is not None:
        beyond = _pairs(far, miss, _levels(np.asarray(baseline, np.float64)))
    return Following(_some(_pairs(far, miss)), beyond, _explained(far, miss, seed))


def missed(
    degrees: pd.DataFrame, scores: pd.DataFrame, detector: str, test: str = "test"
) -> pd.DataFrame:
    """The OOD images with their degrees, ``missed`` by a detector or not, and the baseline's score.

    Missed is what scores at or below the 95% quantile of ID test, so that 95% of ID are kept.

    Args:
        degrees: ``dataset, index`` and degrees of every image.
        scores: ``dataset, index`` and a column per detector.
        detector: whose misses.
        test: name of the ID test set.
    """
    threshold = scores.loc[scores["dataset"] == test, detector].quantile(KEPT)
    columns = [column for column in dict.fromkeys((detector, BASELINE)) if column in scores]
    ood = degrees[degrees["dataset"] != test]
    rows = ood.merge(scores[["dataset", "index", *columns]], on=["dataset", "index"])
    return rows.assign(missed=rows[detector] <= threshold)


def follow_all(
    degrees: pd.DataFrame, scores: pd.DataFrame, detectors: Sequence[str], axes: Sequence[str]
) -> dict[tuple[str, str], Following | None]:
    """:func:`follow` of the misses of every detector, by detector and column of the degrees.

    See :func:`missed` for the tables.
    """
    found = {}
    for name in detectors:
        rows = missed(degrees, scores, name)
        baseline = rows[BASELINE] if name != BASELINE and BASELINE in rows else None
        for axis in axes:
            found[name, axis] = follow(rows[axis], rows["missed"], baseline)
    return found


def follow_results(
    found: Mapping[tuple[str, str], Following | None], n: int, model: str, seed: int
) -> pd.DataFrame:
    """A results table: ``nearer_missed``, ``nearer_missed_beyond`` and ``misses_explained``.

    Args:
        found: see :func:`follow_all`.
        n: OOD images.
        model: whose features the detectors read.
        seed: of the run.
    """
    names = {
        "nearer": "nearer_missed",
        "beyond": "nearer_missed_beyond",
        "explained": "misses_explained",
    }
    rows = []
    for (detector, axis), of in found.items():
        for field, metric in names.items():
            value: Contrast | None = getattr(of, field, None)
            row = {"detector": detector, "axis": axis, "metric": metric, "n": n}
            if value is not None:
                row |= {"value": value.value, "ci_low": value.low, "ci_high": value.high}
            rows.append(row)
    return KIND.table(rows, model=model, seed=seed)


def miss_rates(distance: Floats, missed: np.ndarray) -> tuple[Floats, Floats, Floats, Floats]:
    """Median distance, number, miss rate, and antitonic regression of it, of every level."""
    levels = _levels(distance)
    parts = [levels == level for level in np.unique(levels)]
    n = np.array([part.sum() for part in parts], np.float64)
    rates = np.array([missed[part].mean() for part in parts])
    medians = np.array([np.median(distance[part]) for part in parts])
    return medians, n, rates, _falling(rates, n)


def _levels(values: Floats) -> np.ndarray:
    """Level of every value; equal values share one."""
    count = int(np.clip(len(values) // _PER_LEVEL, 2, _LEVELS))
    edges = np.quantile(values, np.arange(1, count) / count)
    return np.searchsorted(edges, values, side="left")


def _some(found: Contrast | None) -> Contrast:
    assert found is not None  # there are missed and noticed images
    return found


def _pairs(far: Floats, missed: np.ndarray, strata: np.ndarray | None = None) -> Contrast | None:
    """Share of the pairs in which the missed image is nearer, within strata where they are given.

    Weighted by their numbers of pairs; None where no stratum has two images of each.
    """
    value = variance = pairs = 0.0
    groups = [slice(None)] if strata is None else [strata == s for s in np.unique(strata)]
    for group in groups:
        near, other = far[group][missed[group]], far[group][~missed[group]]
        if min(len(near), len(other)) >= 2:
            weight = float(len(near) * len(other))
            share, spread = delong(near, other)
            value += weight * share[0]
            variance += weight**2 * spread[0, 0]
            pairs += weight
    if not pairs:
        return None
    value, half = value / pairs, _Z * np.sqrt(variance) / pairs
    return Contrast(float(value), float(max(value - half, 0)), float(min(value + half, 1)))


def _explained(far: Floats, missed: np.ndarray, seed: int) -> Contrast:
    rng = np.random.default_rng(seed)
    levels = _levels(far)
    halves = [[], []]  # type: list[list[tuple[int, int]]]
    for level in np.unique(levels):
        of = rng.permutation(missed[levels == level])
        for half, part in zip(halves, np.array_split(of, 2), strict=True):
            half.append((len(part), int(part.sum())))
    n, hits = np.array(halves, np.float64).transpose(2, 0, 1)
    if n.min() < 1:
        return Contrast(0.0, 0.0, 1.0)
    draws = [_judged(n, rng.binomial(n.astype(int), hits / n)) for _ in range(_DRAWS)]
    low, high = percentile_interval(np.array(draws), len(far))
    return Contrast(_judged(n, hits), float(low), float(high))


def _judged(n: Floats, hits: Floats) -> float:
    """R² of each half's curve for the other half, not below 0."""
    rates = hits / n
    wrong = total = 0.0
    for fitted, judged in ((0, 1), (1, 0)):
        curve = _falling(rates[fitted], n[fitted])
        mean = np.average(rates[judged], weights=n[judged])
        wrong += float((n[judged] * (rates[judged] - curve) ** 2).sum())
        total += float((n[judged] * (rates[judged] - mean) ** 2).sum())
    return max(1 - wrong / total, 0.0) if total else 0.0


def _falling(rates: Floats, n: Floats) -> Floats:
    return np.asarray(isotonic_regression(rates, weights=n, increasing=False).x)
