"""Selective classification: the risk after the images with the highest scores are rejected.

A *failure* is an ID image whose prediction is wrong, and every OOD image: accepting it is wrong
whatever is predicted. At coverage c the share c of images with the lowest scores is accepted, and
the *selective risk* is the share of failures among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ood_lab.common.random_streams import Resampling
from ood_lab.metrics.resampling.group_intervals import PhotographGroups
from ood_lab.metrics.resampling.intervals import Ends, bootstrap_interval
from ood_lab.metrics.resampling.stratified_bootstrap import Job, draw_generator, score_matrix
from ood_lab.metrics.resampling.weighted_counts import Counts, Groups, first_reaching, take_each
from ood_lab.schema.arrays import Bools, Floats, MetricValues

#: Draws of the bootstrap at most: the area moves less from draw to draw than an FPR95.
MAX_DRAWS = 200
#: Shares of images at which the accuracy of those that are accepted is told.
COVERAGES = (0.5, 0.8, 0.9)
AREAS = ("aurc", "e_aurc", "augrc")
ACCURACIES = tuple(f"accuracy_at_coverage_{100 * c:.0f}" for c in COVERAGES)
#: In the order of :meth:`Ranked.measures`.
METRICS = AREAS + ACCURACIES


@dataclass(frozen=True)
class Ranked:
    """Images in the order in which they are accepted, those of one score as a block.

    In few bytes, as those of all detectors and sets are there at once.

    Attributes:
        order: rows by ascending score, ``[n]``.
        start: position of each block's first row in that order, ``[K]``; None where no images have
            the same score.
        failures: of these rows, 0 or 1, ``[n]``.
    """

    order: NDArray[np.int32]
    start: NDArray[np.int32] | None
    failures: NDArray[np.int8]

    @classmethod
    def of(cls, scores: ArrayLike, failures: ArrayLike) -> Ranked:
        """Checks and sorts the scores and failures.

        Raises:
            ValueError: an empty array, NaN, lengths that differ, or a failure that is not 0 or 1.
        """
        values = score_matrix(scores, "scores")[:, 0]
        wrong = np.asarray(failures)
        if wrong.shape != values.shape:
            raise ValueError(f"failures: expected {values.shape}, got {wrong.shape}")
        if not np.isin(wrong, (0, 1)).all():
            raise ValueError("failures: expected 0 or 1 for each score")
        order = np.argsort(values, kind="stable")
        sorted_values = values[order]
        first = np.append(True, sorted_values[1:] != sorted_values[:-1])
        start = None if first.all() else np.flatnonzero(first).astype(np.int32)
        return cls(order.astype(np.int32), start, wrong[order].astype(np.int8))

    @property
    def once(self) -> Counts:
        """Counts of the images unchanged, ``[1, n]``."""
        return np.ones((1, len(self.order)), dtype=np.int32)

    def accepted(self, counts: Counts) -> Accepted:
        """Images and failures of each block, and those accepted up to its end.

        Args:
            counts: how often each row is there, ``[B, n]``.
        """
        rate: NDArray[Any] = self.failures.astype(np.int32)
        size = counts.take(self.order, axis=-1)
        wrong = size * rate
        if self.start is not None:
            size, wrong = (
                np.add.reduceat(part, self.start, axis=-1, dtype=np.int32) for part in (size, wrong)
            )
            rate = wrong / np.maximum(size, 1)
        # Running sums of whole numbers take an eighth of the time that those of floats do.
        images, failed = (part.cumsum(axis=-1, dtype=np.int32) for part in (size, wrong))
        return Accepted(size, wrong, rate, images, failed)

    def measures(self, counts: Counts) -> MetricValues:
        """Every metric of this module, each ``[B]``.

        ``aurc, e_aurc, augrc`` and ``accuracy_at_coverage_<50, 80 or 90>``, see
        :func:`aurc`, :func:`e_aurc`, :func:`augrc` and :func:`selective_accuracy`.

        Args:
            counts: how often each row is there, ``[B, n]``.
        """
        accepted = self.accepted(counts)
        area, best = accepted.areas()
        kept = accepted.accuracies_at(COVERAGES)
        values = [area, area - best, accepted.joint_area(), *np.moveaxis(kept, -1, 0)]
        return dict(zip(METRICS, values, strict=True))


@dataclass(frozen=True)
class Accepted:
    """Images of the K blocks in the order in which they are accepted, each ``[B, K]``.

    Attributes:
        size: images of each block.
        wrong: failures of each block.
        rate: share of failures in each block; with one row a block that of the row, drawn or not.
        images: images up to its end.
        failed: failures up to its end.
    """

    size: Counts
    wrong: Counts
    rate: NDArray[Any]
    images: Counts
    failed: Counts

    def joint_area(self) -> Floats:
        """AUGRC, ``[B]``."""
        n = self.images[:, -1].astype(np.float64)
        # Pairs of a failure and an image accepted after it; half of those that are tied.
        twice = (2 * self.images - self.size).astype(np.float64)
        earlier = np.einsum("bk,bk->b", self.wrong.astype(np.float64), twice) / 2
        return np.asarray((self.failed[:, -1] * n - earlier) / n**2)

    def accuracies_at(self, coverages: Sequence[float]) -> Floats:
        """Selective accuracy at C coverages, ``[B, C]``."""
        # 0.9 x 10 is a little more than 9 in floating point.
        k = np.maximum(np.ceil(np.multiply.outer(self.images[:, -1], coverages) - 1e-9), 1)
        block = first_reaching(self.images, k)
        parts = (self.images, self.failed, self.size, self.wrong)
        end, lost, of, bad = (take_each(part, block) for part in parts)
        return np.asarray(1 - (lost - bad + bad / of * (k - (end - of))) / k)

    def areas(self) -> tuple[Floats, Floats]:
        """AURC and that of the best possible order of the same images, each ``[B]``."""
        n, errors = self.images[:, -1], self.failed[:, -1]
        harmonic = _harmonic(int(n.max()))
        gained = harmonic.take(self.images)
        gained[:, 1:] -= gained[:, :-1]
        slope = self.failed - self.wrong - self.rate * (self.images - self.size)
        area = (self.wrong + slope * gained).sum(axis=-1)
        right = n - errors
        best = errors - right * (harmonic[n] - harmonic[right])
        return area / n, best / n


@lru_cache(maxsize=1)
def _harmonic(n: int) -> Floats:
    """The first harmonic numbers, ``[n + 1]`` from that of 0."""
    return np.append(0.0, np.cumsum(1 / np.arange(1, n + 1)))


def aurc(scores: ArrayLike, failures: ArrayLike) -> float:
    """Area under the risk-coverage curve, ``mean_i risk(i / n)``; lower is better.

    ``risk(i / n)`` is the share of failures among the i images with the lowest scores (Geifman et
    al., arXiv 1805.08206). Images of one score are accepted in random order: the expected value
    over these orders is exact.

    Args:
        scores: ``[n]``, higher is rejected first.
        failures: ``[n]``, 1 or True where accepting the image is a mistake.

    Raises:
        ValueError: an empty array, NaN, lengths that differ, or a failure that is not 0 or 1.
    """
    return measures_of(scores, failures)["aurc"]


def e_aurc(scores: ArrayLike, failures: ArrayLike) -> float:
    """Excess AURC: the :func:`aurc` above that of the best order of the same images; 0 is perfect.

    The best order accepts all failures last: ``sum_{i > n - e} (i - n + e) / i / n`` with e
    failures, for which arXiv 1805.08206 takes the limit ``r + (1 - r) log(1 - r)``, ``r = e / n``.
    Arguments and errors as there.
    """
    return measures_of(scores, failures)["e_aurc"]


def augrc(scores: ArrayLike, failures: ArrayLike) -> float:
    """Area under the generalised risk-coverage curve; from 0 to 1/2, lower is better.

    ``integral over c of P(failure and accepted at coverage c)`` (Traub et al., arXiv 2407.01032):
    the trapezoids between the points ``(i / n, E_i / n)``, with ``E_i`` failures among the i images
    with the lowest scores, and ``(0, 0)``. The generalised risk counts the failures among all
    images, not among the accepted ones, so that the first few images weigh no more than others.
    With ``r`` the share of failures it equals ``(1 - AUROC) r (1 - r) + r^2 / 2``, AUROC being the
    probability that a failure scores above what is right. Images of one score are accepted in
    random order: the expected value over these orders is exact.

    Arguments and errors as in :func:`aurc`.
    """
    return measures_of(scores, failures)["augrc"]


def selective_accuracy(scores: ArrayLike, failures: ArrayLike, coverage: float) -> float:
    """Share of what is right among the images that are accepted at a coverage; higher is better.

    ``1 - E_k / k`` with ``k = ceil(coverage n)`` and ``E_k`` failures among the k images with the
    lowest scores: one minus the selective risk of Geifman and El-Yaniv (arXiv 1705.08500). Images
    of one score are accepted in random order: where the k-th image is one of m with its score,
    ``E_k`` is the expected number, exactly.

    Args:
        scores: ``[n]``, higher is rejected first.
        failures: ``[n]``, 1 or True where accepting the image is a mistake.
        coverage: share of the images to accept, in (0, 1].

    Raises:
        ValueError: as in :func:`aurc`, or a coverage outside (0, 1].
    """
    if not 0 < coverage <= 1:
        raise ValueError(f"coverage: expected a share in (0, 1], got {coverage}")
    ranked = Ranked.of(scores, failures)
    return ranked.accepted(ranked.once).accuracies_at([coverage]).item()


def risk_coverage(scores: ArrayLike, failures: ArrayLike) -> tuple[Floats, Floats]:
    """The risk-coverage curve at every score that occurs: ``coverage [K], risk [K]``.

    Arguments and errors as in :func:`aurc`.
    """
    ranked = Ranked.of(scores, failures)
    accepted = ranked.accepted(ranked.once)
    images, failed = accepted.images[0], accepted.failed[0]
    return images / images[-1], failed / images


def measures_of(scores: ArrayLike, failures: ArrayLike) -> dict[str, float]:
    """All of them at once, by name, see :meth:`Ranked.measures`.

    Arguments and errors as in :func:`aurc`.
    """
    ranked = Ranked.of(scores, failures)
    return {metric: float(value.item()) for metric, value in ranked.measures(ranked.once).items()}


@dataclass(frozen=True)
class FailureCell:
    """Selective classification of all detectors on only ID, or on ID and one OOD set.

    Attributes:
        dataset: of the OOD images; None = only ID.
        n_id: ID images with a label.
        n_ood: OOD images.
        values: metric -> ``[D]``.
        ends: metric -> the 95% intervals, ``[2, D]``.
    """

    dataset: str | None
    n_id: int
    n_ood: int
    values: MetricValues
    ends: dict[str, Ends]


def failure_job(
    ood: str | None,
    parts: Sequence[Floats],
    wrong: Bools,
    resampling: Resampling,
    copies: PhotographGroups | None,
) -> Job[FailureCell]:
    """The draws of only ID errors, or of these and an OOD set.

    Args:
        ood: name of the set; None = only ID.
        parts: scores of ID, ``[n, D]``, and those of the set, ``[m, D]``.
        wrong: True where the prediction of an ID image is, ``[n]``.
        resampling: of the bootstrap; at most :data:`MAX_DRAWS` draws are made.
        copies: of ID and of the set; whole photographs are drawn then.
    """
    scores, sizes = np.concatenate(parts), [*map(len, parts)]
    failures = np.append(wrong, np.ones(len(scores) - len(wrong)))
    ranked = [Ranked.of(column, failures) for column in scores.T]
    groups = copies or Groups.of(sizes)
    (once,) = ranked[0].once

    def draw(numbers: range) -> Floats:
        # The first is no draw, but the images themselves.
        counts = [
            groups.resample(draw_generator(resampling.seed, b - 1, 2)) if b else once
            for b in numbers
        ]
        weights = np.stack(counts)
        return np.stack([np.stack(list(ranking.measures(weights).values())) for ranking in ranked])

    def finish(values: Floats) -> FailureCell:  # [D, metric, 1 + draws]
        n_id, *n_ood = resampled = copies.n if copies else sizes
        of_metrics = dict(zip(METRICS, values.swapaxes(0, 1), strict=True))
        ends = {m: bootstrap_interval(of[:, 1:], min(resampled)) for m, of in of_metrics.items()}
        return FailureCell(
            ood, n_id, sum(n_ood), {m: of[:, 0] for m, of in of_metrics.items()}, ends
        )

    return Job(draw, 1 + min(resampling.draws, MAX_DRAWS), len(scores), len(ranked), finish)
