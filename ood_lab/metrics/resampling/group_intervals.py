"""Images that are resampled together, and intervals of metrics on OOD groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ood_lab.metrics.record import Rule
from ood_lab.metrics.resampling.intervals import (
    FEWEST,
    auroc_interval,
    bootstrap_interval,
    exceedance_interval,
    is_rare,
    percentile_interval,
)
from ood_lab.metrics.resampling.weighted_counts import Counts, Groups
from ood_lab.schema.arrays import Bools, Floats, Ints
from ood_lab.schema.image_columns import MADE_OF


def photographs(rows: pd.DataFrame) -> NDArray[np.object_] | None:
    """The photograph that each image is made of, or is; None where no image is made of another."""
    if MADE_OF not in rows or not rows[MADE_OF].notna().any():
        return None
    made_of = rows[MADE_OF]
    return (made_of.fillna(rows["path"]) if made_of.isna().any() else made_of).to_numpy(object)


def sample_size(rows: pd.DataFrame) -> int:
    """Number of images, or of the photographs and groups that they belong to."""
    made_of = photographs(rows)
    return len(rows) if made_of is None else len(set(made_of))


def effective_size(right: Floats, made_of: ArrayLike | None) -> float:
    """Number of independent images whose share of right answers is as uncertain.

    ``p (1 - p) / v`` with the variance v of a share over K groups, ``K / (K - 1) sum_k (sum_{i in
    k} (r_i - p))^2 / n^2``; n at most, K where all or none are right, and n where each image is its
    own.

    Args:
        right: 1 or 0, ``[n]``.
        made_of: the group of each image, ``[n]``; None = each is its own.
    """
    n, codes = len(right), None if made_of is None else pd.factorize(np.asarray(made_of, object))[0]
    if codes is None or (k := int(codes.max()) + 1) == n:
        return n
    p = right.mean()
    sums = np.bincount(codes, right - p)
    variance = k / max(k - 1, 1) * (sums**2).sum() / n**2
    return float(min(n, p * (1 - p) / variance)) if variance > 0 else k


@dataclass(frozen=True)
class PhotographGroups:
    """Samples that are drawn as whole photographs, so that their copies have one count.

    Within each group, the photographs with equally many copies are a stratum, so that a resample of
    a group has its size. Strata of the same photographs share their draws: the severities of a set,
    and the ID images that it is made of.

    Attributes:
        place: number of the photograph that each sample is made of, ``[N]``, all groups in a row.
        strata: of the photographs.
        n: number of photographs of each group.
    """

    place: Ints
    strata: Groups
    n: list[int]

    @classmethod
    def of(cls, made_of: Sequence[ArrayLike]) -> PhotographGroups:
        """From the photographs of the samples of each group, ``[m_g]`` each."""
        start: dict[bytes, int] = {}
        sizes: list[int] = []
        places, n = [], []
        codes, _ = pd.factorize(np.concatenate([np.asarray(g, object) for g in made_of]))
        for of_group in np.split(codes, np.cumsum([len(np.asarray(g)) for g in made_of])[:-1]):
            names, sample, copies = np.unique(of_group, return_inverse=True, return_counts=True)
            place = np.empty(len(names), np.int64)
            for count in np.unique(copies):
                members = np.flatnonzero(copies == count)
                key = names[members].tobytes()
                if key not in start:
                    start[key] = sum(sizes)
                    sizes.append(len(members))
                place[members] = start[key] + np.arange(len(members))
            places.append(place[sample])
            n.append(len(names))
        return cls(np.concatenate(places), Groups.of(sizes), n)

    def resample(self, rng: np.random.Generator) -> Counts:
        """The number of draws of each sample, ``[N]``."""
        return self.strata.resample(rng).take(self.place)


Ends = tuple[Floats, Floats]
# Of means over groups: in so small a group the draws spread too little, whatever the metric.
_FEWEST_OF_A_MEAN = 10


def group_ends(
    rule: Rule,
    values: Floats,
    draws: Floats,
    id_matrix: Floats,
    ood_matrix: Floats,
    n: tuple[int, int] | None = None,
) -> Ends:
    """Both ends of the 95% intervals on one group, ``[D]`` each.

    - ``auroc``: :func:`~ood_lab.metrics.resampling.intervals.auroc_interval`.
    - ``threshold_*`` (FPR95): the percentiles of the draws; those of order statistics and
      proportions (:func:`~ood_lab.metrics.resampling.intervals.exceedance_interval`) where a group
      has fewer than 100 images, or the draws are all the same; NaN there for copies of one
      photograph, of which order statistics know nothing.
    - ``percentile`` (AUPR): the percentiles of the draws; NaN where a group has fewer than 100
      images.

    Args:
        rule: of the metric.
        values: ``[D]``.
        draws: ``[D, B]``.
        id_matrix: ID scores, ``[n, D]``.
        ood_matrix: scores of the group, ``[m, D]``.
        n: photographs, or groups, that the images of ID and of the OOD group are made of; None = as
            many as there are images.
    """
    images = len(id_matrix), len(ood_matrix)
    single, smallest = n is None or n == images, min(n or images)
    if rule == "auroc":
        return auroc_interval(values, draws, smallest)
    if rule == "percentile":
        return bootstrap_interval(draws, smallest)
    low, high = np.full(len(values), np.nan), np.full(len(values), np.nan)
    failing = np.full(len(values), True)
    if smallest >= FEWEST:
        low, high = percentile_interval(draws, smallest)
        failing = low == high
    if not single:
        low[failing], high[failing] = np.nan, np.nan
    elif failing.any():
        threshold_of, counted = ood_matrix[:, failing], id_matrix[:, failing]
        if rule == "threshold_id":
            threshold_of, counted = -counted, -threshold_of
        low[failing], high[failing] = exceedance_interval(threshold_of, counted)
    return low, high


def mean_ends(
    rule: Rule, values: Floats, draws: Floats, group_ends: Ends, n_id: int, n_ood: Sequence[int]
) -> Ends:
    """Both ends of the 95% intervals of a mean over G groups, ``[D]`` each.

    The percentiles of the draws, which share the ID resample; but

    - where a group has fewer than 10 images, ``auroc`` and ``threshold_*`` (FPR95) have the means
      of the groups' own ends, which are wide; so none for ``auroc`` where one has a single image;
    - ``auroc`` near 0 or 1 has the interval of an AUROC of all images together;
    - ``threshold_*`` (FPR95) has these means also where a threshold rests on fewer than 100
      images, or the draws are all the same;
    - ``percentile`` (AUPR) has none where a group has fewer than 100 images.

    Args:
        rule: of the metric.
        values: the means, ``[D]``.
        draws: those of the draws, ``[D, B]``.
        group_ends: the ends of the groups, ``[D, G]`` each.
        n_id: ID images.
        n_ood: images of the groups, ``[G]``; a group without a value is not among them.
    """
    nothing = np.full(len(values), np.nan)
    if not n_ood:
        return nothing, nothing
    n = min(n_id, min(n_ood))
    if rule == "auroc":
        if n < _FEWEST_OF_A_MEAN:
            return group_ends[0].mean(axis=1), group_ends[1].mean(axis=1)
        pooled = min(n_id, sum(n_ood))
        return _where(
            is_rare(values, pooled),
            auroc_interval(values, draws, pooled),
            percentile_interval(draws, n),
        )
    if rule == "percentile":
        return bootstrap_interval(draws, n)
    low, high = percentile_interval(draws, n)
    few = (n_id if rule == "threshold_id" else min(n_ood)) < FEWEST or n < _FEWEST_OF_A_MEAN
    # Ends that are missing are 0 and 1.
    means = (
        np.nan_to_num(group_ends[0], nan=0.0).mean(axis=1),
        np.nan_to_num(group_ends[1], nan=1.0).mean(axis=1),
    )
    return _where(few | (low == high), means, (low, high))


def _where(condition: Bools, one: Ends, other: Ends) -> Ends:
    return np.where(condition, one[0], other[0]), np.where(condition, one[1], other[1])
