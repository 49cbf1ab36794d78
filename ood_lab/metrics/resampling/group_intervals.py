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
    Ends,
    auroc_interval,
    bootstrap_interval,
    exceedance_interval,
    is_rare,
    percentile_interval,
)
from ood_lab.metrics.resampling.weighted_counts import Counts, Groups
from ood_lab.schema.arrays import Floats, Ints
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
    variance = k / max(k - 1, 1) * (np.bincount(codes, right - p) ** 2).sum() / n**2
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


# Of means over groups: in so small a group the draws spread too little, whatever the metric.
_FEWEST_OF_A_MEAN = 10


def group_ends(
    rule: Rule,
    values: Floats,
    draws: Floats,
    id_matrix: Floats,
    ood_matrix: Floats,
    n: tuple[int, int],
) -> Ends:
    """The 95% intervals on one group, ``[2, D]``.

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
        n: photographs, or groups, that the images of ID and of the OOD group are made of.
    """
    smallest = min(n)
    if rule == "auroc":
        return auroc_interval(values, draws, smallest)
    if rule == "percentile":
        return bootstrap_interval(draws, smallest)
    ends = percentile_interval(draws, smallest)
    failing = (ends[0] == ends[1]) | (smallest < FEWEST)
    if n != (len(id_matrix), len(ood_matrix)):
        ends[:, failing] = np.nan
    elif failing.any():
        threshold_of, counted = ood_matrix[:, failing], id_matrix[:, failing]
        if rule == "threshold_id":
            threshold_of, counted = -counted, -threshold_of
        ends[:, failing] = exceedance_interval(threshold_of, counted)
    return ends


def mean_ends(
    rule: Rule, values: Floats, draws: Floats, group_ends: Ends, n_id: int, n_ood: Sequence[int]
) -> Ends:
    """The 95% intervals of a mean over G groups, ``[2, D]``.

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
        group_ends: those of the groups, ``[2, D, G]``.
        n_id: ID images.
        n_ood: images of the groups, ``[G]``; a group without a value is not among them.
    """
    if not n_ood:
        return np.full((2, len(values)), np.nan)
    n = min(n_id, min(n_ood))
    if rule == "auroc":
        if n < _FEWEST_OF_A_MEAN:
            return group_ends.mean(axis=2)
        pooled = min(n_id, sum(n_ood))
        return np.where(
            is_rare(values, pooled),
            auroc_interval(values, draws, pooled),
            percentile_interval(draws, n),
        )
    if rule == "percentile":
        return bootstrap_interval(draws, n)
    ends = percentile_interval(draws, n)
    few = (n_id if rule == "threshold_id" else min(n_ood)) < FEWEST or n < _FEWEST_OF_A_MEAN
    # Ends that are missing are 0 and 1.
    means = [np.nan_to_num(end, nan=nan).mean(axis=1) for nan, end in enumerate(group_ends)]
    return np.where(few | (ends[0] == ends[1]), means, ends)
