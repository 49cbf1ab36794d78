"""Images of one photograph, or group, belong together, and are resampled together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

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
