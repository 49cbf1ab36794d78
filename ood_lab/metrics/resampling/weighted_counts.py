"""OOD metrics as weighted sums over sorted scores: the inner loop of the bootstrap.

A draw of the bootstrap gives every sample a count, how often it was drawn. With the scores sorted
once and their ranks known, each metric of the draw follows from the counts and their running sums
in O(n), without sorting or building a resampled array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ood_lab.metrics.ood import AuprMethod, SortedScores, precision_area
from ood_lab.schema.arrays import Floats, Ints

TPR = 0.95
Counts = NDArray[np.int32]
Places = Ints | slice
#: Where the ties of scores begin and end.
BeginAndEnd = tuple[Ints, Ints]


@dataclass(frozen=True)
class Groups:
    """OOD groups that lie one after the other on one axis of m samples.

    Attributes:
        size: samples of each group, ``[G]``.
        start: position of each group's first sample, ``[G]``.
        member: group of each sample, ``[m]``.
    """

    size: Ints
    start: Ints
    member: Ints

    @classmethod
    def of(cls, sizes: Sequence[int]) -> Groups:
        """Lays out groups of the given sizes."""
        size = np.asarray(sizes, dtype=np.int64)
        return cls(size, np.cumsum(size) - size, np.repeat(np.arange(size.size), size))

    def resample(self, rng: np.random.Generator) -> Counts:
        """The number of draws of each sample when every group is resampled to its own size."""
        size_of, start_of = self._of_member
        rows = (rng.random(self.member.size) * size_of).astype(np.int64)
        rows += start_of
        return np.bincount(rows, minlength=self.member.size).astype(np.int32)

    @cached_property
    def end(self) -> NDArray[np.float32]:
        """Position behind the last sample of each sample's group, ``[m]``."""
        return (self.start + self.size).take(self.member).astype(np.float32)

    @cached_property
    def _of_member(self) -> tuple[Floats, Ints]:
        return self.size.take(self.member).astype(np.float64), self.start.take(self.member)


@dataclass(frozen=True)
class Draws:
    """Counts of B draws in the sorted order of one detector, and running sums from zero.

    ``id [B, n]``, ``ood [B, m]``, ``id_run [B, n + 1]``, ``ood_run [B, m + 1]``; and the ID samples
    below, and up to, each OOD sample, ``below [B, m]``, ``up_to [B, m]``.
    """

    id: NDArray
    ood: NDArray
    id_run: NDArray
    ood_run: NDArray
    below: NDArray
    up_to: NDArray

    @cached_property
    def real(self) -> Draws:
        """The same counts as float32.

        It holds counts up to 2^24 exactly and halves the traffic of many divisions.
        """

        def real(counts: NDArray) -> NDArray:
            return counts.astype(np.float32)

        below, up_to = _each(real, (self.below, self.up_to))
        of_id, other = real(self.id), real(self.ood)
        return Draws(of_id, other, real(self.id_run), real(self.ood_run), below, up_to)


class RankedScores:
    """One detector's ID scores ``[n]`` and grouped OOD scores ``[m]``, sorted and ranked."""

    def __init__(self, id_scores: Floats, ood_scores: Floats, groups: Groups) -> None:
        self.groups = groups
        self.n = id_scores.size
        self._id_order = np.argsort(id_scores).astype(np.int32)
        self._ood_order = np.lexsort((ood_scores, groups.member)).astype(np.int32)
        self._id = id_scores[self._id_order]
        self._ood = ood_scores[self._ood_order]
        self._below, self._up_to = _one_if_equal(_positions(self._id, self._ood))
        # Rises over all groups, so that one search finds a rank in every group at once.
        self._key = self._below + groups.member * (self.n + 1)
        self._key_start = np.arange(groups.size.size) * (self.n + 1)
        self._id_ranks = _ranks_around(TPR, np.array([self.n]))
        self._ood_ranks = _ranks_around(1 - TPR, groups.size)

    def draws(self, id_counts: Counts, ood_counts: Counts) -> Draws:
        """The counts of B draws in the order of the scores.

        Args:
            id_counts: in sample order, ``[B, n]``.
            ood_counts: ``[B, m]``; those of a group add up to its size.
        """
        id_sorted = id_counts.take(self._id_order, axis=1)
        ood_sorted = ood_counts.take(self._ood_order, axis=1)
        id_run, ood_run = _running(id_sorted), _running(ood_sorted)
        below, up_to = _each(lambda place: id_run.take(place, axis=1), (self._below, self._up_to))
        return Draws(id_sorted, ood_sorted, id_run, ood_run, below, up_to)

    def each_resampled(self, draws: Draws, value: Callable[[SortedScores], float]) -> Floats:
        """Any function of two sorted samples, for every draw and group, ``[B, G]``: slow."""
        ends = np.append(self.groups.start[1:], self._ood.size)
        values = np.empty((len(draws.id), ends.size))
        for b, (count, other) in enumerate(zip(draws.id, draws.ood, strict=True)):
            resampled = np.repeat(self._id, count)
            for g, (start, end) in enumerate(zip(self.groups.start, ends, strict=True)):
                group = np.repeat(self._ood[start:end], other[start:end])
                values[b, g] = value(SortedScores(resampled, group))
        return values

    def fpr95_id_positive(self, draws: Draws) -> Floats:
        """FPR95 with ID positive, ``[B, G]``.

        Of each group it is the share at or below the ID scores of both ranks, ``[B, 2, G]``.
        """
        ranks = np.tile(self._id_ranks.both.T, (len(draws.id), 1))
        threshold = first_reaching(draws.id_run[:, 1:], ranks)
        end = np.searchsorted(self._key, threshold[:, :, None] + self._key_start, side="right")
        accepted = (take_each(draws.ood_run, end) - self.groups.start) / self.groups.size
        return self._id_ranks.between(accepted)

    def fpr95_ood_positive(self, draws: Draws) -> Floats:
        """FPR95 with OOD positive, ``[B, G]``.

        It is the share of ID at or above each group's scores of both ranks, ``[B, 2, G]``.
        """
        both = self._ood_ranks.both
        target = np.tile((self.groups.start + both).ravel(), (len(draws.ood), 1))
        threshold = first_reaching(draws.ood_run[:, 1:], target).reshape((-1, *both.shape))
        return self._ood_ranks.between(1 - take_each(draws.below, threshold) / self.n)

    def auroc(self, draws: Draws) -> Floats:
        """AUROC, ``[B, G]``."""
        tied = draws.up_to is not draws.below
        credit = (draws.below + draws.up_to) / 2 if tied else draws.below
        won = np.add.reduceat(draws.ood * credit, self.groups.start, axis=1, dtype=np.float64)
        return won / (self.n * self.groups.size)

    def aupr_in(self, draws: Draws, method: AuprMethod) -> Floats:
        """AUPR with ID positive, ``[B, G]``."""
        draws = draws.real
        own_start, own_end = self._id_among_id
        detected, detected_before = (_at(draws.id_run, place) for place in (own_end, own_start))
        starts, ends = self._id_among_ood
        areas = []
        for group, first in enumerate(self.groups.start.astype(np.float32)):  # fits in the cache
            places = [starts[group]] if ends is starts else [starts[group], ends[group]]
            false = [draws.ood_run.take(place, axis=1) - first for place in places]
            area = precision_area(detected, false[-1], detected_before, false[0], method)
            areas.append(np.einsum("bn,bn->b", area, draws.id))
        return np.stack(areas, axis=1) / self.n

    def aupr_out(self, draws: Draws, method: AuprMethod) -> Floats:
        """AUPR with OOD positive, ``[B, G]``."""
        draws = draws.real
        own_start, own_end = self._ood_among_ood
        false, false_before = _each(lambda below: self.n - below, (draws.below, draws.up_to))
        detected, detected_before = (
            self.groups.end - _at(draws.ood_run, place) for place in (own_start, own_end)
        )
        area = precision_area(detected, false, detected_before, false_before, method)
        detected = np.add.reduceat(draws.ood * area, self.groups.start, axis=1, dtype=np.float64)
        return detected / self.groups.size

    @cached_property
    def _id_among_id(self) -> tuple[Places, Places]:
        """The places where the ties of each ID score begin and end, ``[n]``."""
        return _without_gaps(_positions(self._id, self._id))

    @cached_property
    def _id_among_ood(self) -> BeginAndEnd:
        """The places where each ID score would begin and end in every group, ``[G, n]``."""
        return self._in_blocks(lambda block: self._id, np.stack)

    @cached_property
    def _ood_among_ood(self) -> tuple[Places, Places]:
        """The places where the ties of each OOD score begin and end within its group, ``[m]``."""
        return _without_gaps(self._in_blocks(lambda block: block, np.concatenate))

    def _in_blocks(
        self, queries: Callable[[Floats], Floats], join: Callable[[list[Ints]], Ints]
    ) -> BeginAndEnd:
        blocks = np.split(self._ood, self.groups.start[1:])
        starts, ends = zip(*[_positions(block, queries(block)) for block in blocks], strict=True)
        shift = self.groups.start
        below = join([a + s for a, s in zip(starts, shift, strict=True)])
        return _one_if_equal((below, join([a + s for a, s in zip(ends, shift, strict=True)])))


def _positions(ascending: Floats, queries: Floats) -> BeginAndEnd:
    """Values below, and up to, each query."""
    left = np.searchsorted(ascending, queries, side="left")
    return left, np.searchsorted(ascending, queries, side="right")


def _without_gaps(places: BeginAndEnd) -> tuple[Places, Places]:
    """Where no scores are tied, each begins at its own place, and the next one where it ends."""
    start, end = places
    return places if (end - start > 1).any() else (slice(None, -1), slice(1, None))


def _at(run: NDArray, places: Places) -> NDArray:
    """The running sums at these places, ``[B, k + 1] -> [B, ...]``."""
    return run[:, places] if isinstance(places, slice) else run.take(places, axis=1)


def _one_if_equal(places: BeginAndEnd) -> BeginAndEnd:
    """One array for both where no scores are tied, which halves the work on them."""
    below, up_to = places
    return below, below if np.array_equal(below, up_to) else up_to


def _each(
    work: Callable[[NDArray], NDArray], both: tuple[NDArray, NDArray]
) -> tuple[NDArray, NDArray]:
    """The work on both, done once where they are one array."""
    first = work(both[0])
    return first, first if both[1] is both[0] else work(both[1])


def _running(counts: Counts) -> Counts:
    run = np.zeros((len(counts), counts.shape[1] + 1), dtype=np.int32)
    np.cumsum(counts, axis=1, dtype=np.int32, out=run[:, 1:])
    return run


def first_reaching(run: Counts, target: Ints | Floats) -> Ints:
    """First sample whose running sum reaches the target, ``[B, k], [B, G] -> [B, G]``."""
    # Of one dtype: otherwise the search first copies the whole row into the other.
    rows = zip(run, target.astype(run.dtype), strict=True)
    return np.array([row.searchsorted(wanted) for row, wanted in rows])


def take_each(counts: Counts, at: Ints) -> Counts:
    """Numbers of each draw at its own places, ``[B, k], [B, ...] -> [B, ...]``."""
    first = np.arange(len(counts)) * counts.shape[1]
    return counts.take(at + first.reshape((-1, *[1] * (at.ndim - 1))))


class _Ranks(NamedTuple):
    """Two neighbouring ranks and the offset of the wanted one from the lower.

    Attributes:
        both: the lower and the upper rank of each group, ``[2, G]``.
        weight: of the upper one, ``[G]``.
    """

    both: Ints
    weight: Floats

    def between(self, values: Floats) -> Floats:
        """The value at the wanted rank from those at both, ``[B, 2, G] -> [B, G]``."""
        return (1 - self.weight) * values[:, 0] + self.weight * values[:, 1]


def _ranks_around(share: float, n: Ints) -> _Ranks:
    """Rank ``share * n + 1/2`` from below (Hyndman and Fan 1996, definition 5), within 1..n.

    The step rule of the point estimate is off by up to one rank, always to the same side; with 100
    OOD samples this costs a 95% interval 5% of coverage.
    """
    rank = np.clip(share * n + 0.5, 1, n)
    lower = np.floor(rank).astype(np.int64)
    return _Ranks(np.stack([lower, np.minimum(lower + 1, n)]), rank - lower)
