"""Failure detection: the risk that remains once the images with the highest scores are rejected.

A *failure* is an ID image whose prediction is wrong, and every OOD image: accepting it is wrong
whatever is predicted. At coverage c the share c of images with the lowest scores is accepted, and
the *selective risk* is the share of failures among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ood_lab.metrics.copies import Copies, photographs
from ood_lab.metrics.counts import Counts, Groups
from ood_lab.metrics.evaluation import Evaluation
from ood_lab.metrics.intervals import bootstrap_interval
from ood_lab.metrics.ood import Floats, Ints
from ood_lab.metrics.resampling import draw_generator, score_matrix, side_by_side

#: Draws of the bootstrap at most: the area moves less from draw to draw than an FPR95.
MAX_DRAWS = 200
#: Shares of images at which the accuracy of those that are accepted is told.
COVERAGES = (0.5, 0.8, 0.9)
AREAS = ("aurc", "e_aurc", "augrc")
ACCURACIES = tuple(f"accuracy_at_{100 * c:.0f}" for c in COVERAGES)
#: In the order of :meth:`Ranked.measures`.
METRICS = AREAS + ACCURACIES
# As in the bootstrap of OOD metrics; here numbers take eight bytes.
_BATCH_SAMPLES = 15_000


@dataclass(frozen=True)
class Ranked:
    """Images in the order in which they are accepted, those of one score as a block.

    Attributes:
        order: rows by ascending score, ``[n]``.
        start: position of each block's first row in that order, ``[K]``.
        failures: of all rows, as given, ``[n] float64``.
    """

    order: Ints
    start: Ints
    failures: Floats

    @classmethod
    def of(cls, scores: ArrayLike, failures: ArrayLike) -> Ranked:
        """Checks and sorts the scores and failures.

        Raises:
            ValueError: an empty array, NaN, or lengths that differ.
        """
        values = score_matrix(scores, "scores")[:, 0]
        wrong = np.asarray(failures, dtype=np.float64)
        if wrong.shape != values.shape:
            raise ValueError(f"failures: expected {values.shape}, got {wrong.shape}")
        order = np.argsort(values, kind="stable")
        sorted_values = values[order]
        first = np.append(True, sorted_values[1:] != sorted_values[:-1])
        return cls(order, np.flatnonzero(first), wrong)

    def accepted(self, counts: Counts) -> Accepted:
        """Images and failures of each block, and those accepted up to its end.

        Args:
            counts: how often each row is there, ``[..., n]``.
        """
        size = counts.take(self.order, axis=-1)
        wrong = size * self.failures[self.order]
        if len(self.start) < len(self.order):  # some images have the same score
            size = np.add.reduceat(size, self.start, axis=-1)
            wrong = np.add.reduceat(wrong, self.start, axis=-1)
        images = size.cumsum(axis=-1, dtype=np.int64)
        return Accepted(size, wrong, images, wrong.cumsum(axis=-1))

    def measures(self, counts: Counts) -> dict[str, Floats]:
        """Every metric of this module, each ``[...]``.

        ``aurc, e_aurc, augrc`` and ``accuracy_at_50, accuracy_at_80, accuracy_at_90``, see
        :func:`aurc`, :func:`e_aurc`, :func:`augrc` and :func:`selective_accuracy`.

        Args:
            counts: how often each row is there, ``[..., n]``.
        """
        accepted = self.accepted(counts)
        area, best = accepted.areas()
        found = [area, area - best, accepted.joint_area()]
        found += [accepted.accuracy_at(coverage) for coverage in COVERAGES]
        return dict(zip(METRICS, found, strict=True))


@dataclass(frozen=True)
class Accepted:
    """Images of the K blocks in the order in which they are accepted, each ``[..., K]``.

    Attributes:
        size: images of each block.
        wrong: failures of each block.
        images: images up to its end.
        failed: failures up to its end.
    """

    size: Counts
    wrong: Floats
    images: Ints
    failed: Floats

    def joint_area(self) -> Floats:
        """AUGRC, ``[...]``."""
        right = self.size - self.wrong
        n, errors = self.images[..., -1], self.wrong.sum(axis=-1)
        # Pairs in which the failure is accepted before what is right; half of those that are tied.
        later = (n - errors)[..., None] - right.cumsum(axis=-1) + right / 2
        joint = (self.wrong * later).sum(axis=-1) + errors**2 / 2
        return np.asarray(joint / np.square(n, dtype=np.float64))

    def accuracy_at(self, coverage: float) -> Floats:
        """Selective accuracy at a coverage, ``[...]``."""
        # 0.9 x 10 is a little more than 9 in floating point.
        k = np.maximum(np.ceil(coverage * self.images[..., -1:] - 1e-9), 1)
        block = (self.images < k).sum(axis=-1, keepdims=True)
        parts: tuple[NDArray[Any], ...] = (self.images, self.failed, self.size, self.wrong)
        end, lost, of, bad = (np.take_along_axis(part, block, axis=-1) for part in parts)
        found = 1 - (lost - bad + bad / of * (k - (end - of))) / k
        return np.asarray(found[..., 0], np.float64)

    def areas(self) -> tuple[Floats, Floats]:
        """AURC and that of the best possible order of the same images, each ``[...]``."""
        size, wrong, images, failed = self.size, self.wrong, self.images, self.failed
        n, errors = images[..., -1], failed[..., -1]
        harmonic = np.append(0.0, np.cumsum(1 / np.arange(1, int(n.max()) + 1)))
        reached = harmonic.take(images)
        gained = np.diff(reached, prepend=0.0)
        slope = wrong / np.maximum(size, 1)
        area = (wrong + (failed - wrong - slope * (images - size)) * gained).sum(axis=-1)
        right = (n - errors).astype(np.int64)
        best = errors - right * (harmonic[n] - harmonic[right])
        return area / n, best / n


def aurc(scores: ArrayLike, failures: ArrayLike) -> float:
    """Area under the risk-coverage curve, ``mean_i risk(i / n)``; lower is better.

    ``risk(i / n)`` is the share of failures among the i images with the lowest scores (Geifman et
    al., arXiv 1805.08206). Images of one score are accepted in random order: the expected value
    over these orders is exact.

    Args:
        scores: ``[n]``, higher is rejected first.
        failures: ``[n]``, 1 or True where accepting the image is a mistake.

    Raises:
        ValueError: an empty array, NaN, or lengths that differ.
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
    once = np.ones(len(ranked.order), dtype=np.int32)
    return float(ranked.accepted(once).accuracy_at(coverage))


def risk_coverage(scores: ArrayLike, failures: ArrayLike) -> tuple[Floats, Floats]:
    """The risk-coverage curve at every score that occurs: ``coverage [K], risk [K]``.

    Arguments and errors as in :func:`aurc`.
    """
    ranked = Ranked.of(scores, failures)
    accepted = ranked.accepted(np.ones(len(ranked.order), dtype=np.int32))
    return accepted.images / accepted.images[-1], accepted.failed / accepted.images


def measures_of(scores: ArrayLike, failures: ArrayLike) -> dict[str, float]:
    """All of them at once, by name, see :meth:`Ranked.measures`.

    Arguments and errors as in :func:`aurc`.
    """
    ranked = Ranked.of(scores, failures)
    found = ranked.measures(np.ones(len(ranked.order), dtype=np.int32))
    return {metric: float(value) for metric, value in found.items()}


@dataclass(frozen=True)
class FailureCell:
    """Failure detection of all detectors on ID alone, or on ID and one OOD set.

    Attributes:
        ood: name of the set; None = ID alone.
        n_id: ID images with a label.
        n_ood: OOD images.
        values: metric -> ``[D]``.
        ends: metric -> lower and upper end of the 95% interval, ``[D]`` each.
    """

    ood: str | None
    n_id: int
    n_ood: int
    values: dict[str, Floats]
    ends: dict[str, tuple[Floats, Floats]]


def failure_cells(evaluation: Evaluation) -> Iterator[FailureCell]:
    """ID errors, then ID errors and each OOD set; nothing where predictions mean nothing."""
    rows = evaluation.id_rows
    if not {"label", "pred"} <= set(rows):
        return
    rows = rows[rows["label"] >= 0]
    if rows.empty:
        return
    wrong = (rows["label"] != rows["pred"]).to_numpy(np.float64)
    inside = evaluation.matrix(rows)
    for ood in (None, *evaluation.ood_names):
        parts = [] if ood is None else [evaluation.rows_of(ood)]
        blocks = [evaluation.matrix(part) for part in parts]
        names = photographs(pd.concat([rows, *parts]))
        scores = np.concatenate([inside, *blocks])
        failures = np.concatenate([wrong, *(np.ones(len(block)) for block in blocks)])
        sizes = [len(inside), *map(len, blocks)]
        copies = None
        if names is not None:
            copies = Copies.of(np.split(names, np.cumsum(sizes)[:-1]))
        yield _cell(evaluation, ood, scores, failures, sizes, copies)


def _cell(
    evaluation: Evaluation,
    ood: str | None,
    scores: Floats,
    failures: Floats,
    sizes: Sequence[int],
    copies: Copies | None,
) -> FailureCell:
    groups = copies or Groups.of(sizes)
    draws = min(evaluation.draws, MAX_DRAWS)
    counts = [groups.resample(draw_generator(evaluation.seed, b, 2)) for b in range(draws)]
    size = max(1, _BATCH_SAMPLES // len(scores))
    # The first row is no draw, but the images themselves.
    drawn = np.stack([np.ones(len(scores), dtype=np.int32), *counts])

    parts = [drawn[i : i + size] for i in range(0, len(drawn), size)]

    def measures(column: Floats) -> Floats:
        ranked = Ranked.of(column, failures)
        return np.concatenate(
            [np.stack(list(ranked.measures(part).values())) for part in parts], axis=1
        )

    numbers = len(drawn) * scores.size
    columns = side_by_side(measures, list(scores.T), numbers, len(scores))
    found = np.stack(columns, axis=1)  # [metric, D, 1 + draws]
    resampled = copies.n if copies else sizes
    n = min(resampled)
    return FailureCell(
        ood,
        sizes[0],
        sum(resampled[1:]),
        {m: found[i, :, 0] for i, m in enumerate(METRICS)},
        {m: bootstrap_interval(found[i, :, 1:], n) for i, m in enumerate(METRICS)},
    )
