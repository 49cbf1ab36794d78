"""Separation of ID and OOD samples by one score: AUROC, FPR at a TPR, AUPR.

Everywhere a higher score means "more OOD". Scores are compared in float64, so any range is valid
and no monotone rescaling changes a result. Ties get half credit in the AUROC and cross a threshold
together in the other metrics. ``-inf`` and ``+inf`` are valid scores and rank first and last;
NaN has no rank and is rejected.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ood_lab.schema.arrays import Floats, Ints

#: Where a value belongs among equal ones: before the first, and behind the last.
_SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")
AuprMethod = Literal["average_precision", "trapezoid"]
#: The class whose images an FPR counts as found.
PositiveClass = Literal["ood", "id"]
#: A lower AUROC says that the order is the wrong way round.
REVERSED = 0.4


def as_scores(values: ArrayLike | Any, name: str) -> Floats:
    """Returns ``values`` (numpy, torch or a sequence) as a non-empty 1-D float64 array.

    Raises:
        ValueError: not 1-D, empty, or NaN; the message starts with ``name``.
    """
    if hasattr(values, "detach"):  # torch, without importing it; bfloat16 has no numpy dtype
        values = values.detach().cpu().double().numpy()
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim != 1:
        raise ValueError(f"{name}: expected a 1-D array of scores, got shape {scores.shape}")
    if scores.size == 0:
        raise ValueError(f"{name}: no samples; OOD metrics need both ID and OOD scores")
    missing = np.isnan(scores)
    if missing.any():
        raise ValueError(
            f"{name}: {missing.sum()} of {scores.size} scores are NaN, "
            f"the first at position {missing.argmax()}"
        )
    return scores


def required_count(n: int, tpr: float) -> int:
    """Smallest k with ``k / n >= tpr``, judged by the division itself, not by ``ceil(tpr * n)``."""
    k = int(np.ceil(tpr * n))
    return k - 1 if (k - 1) / n >= tpr else k


def threshold_at_tpr(ood_scores: ArrayLike, tpr: float = 0.95) -> float:
    """The highest t with ``P(OOD >= t) >= tpr``, one of the scores ``[m]``.

    Raises:
        ValueError: no scores, scores that are not finite, or a tpr outside (0, 1].
    """
    ordered = np.sort(as_scores(ood_scores, "ood_scores"))
    return SortedScores(ordered, ordered)._threshold(tpr, "ood")


def precision_area(
    tp: NDArray, fp: NDArray, tp_before: NDArray, fp_before: NDArray, method: AuprMethod
) -> NDArray:
    """Mean height of the precision-recall curve over the step that ends at each positive.

    ``tp, fp`` count the samples up to and including the positive's own threshold, ``tp_before,
    fp_before`` those of the threshold before; any equal shapes. Average precision takes the height
    at the end of the step, ``tp / (tp + fp)``; the trapezoid the mean of both ends, where the
    curve starts at precision 1.
    """
    # Keeps 0 / 0 at 0 and, at the start of the curve, at 1; too small to change another value.
    tiny = np.float32(1e-30)
    false = fp + tiny
    height = tp / (tp + false)
    if method == "average_precision":
        return height
    if method != "trapezoid":
        raise ValueError(f"method: expected 'average_precision' or 'trapezoid', got {method!r}")
    false = false if fp_before is fp else fp_before + tiny
    height += (tp_before + tiny) / (tp_before + false)
    height *= np.float32(0.5)
    return height


@dataclass(frozen=True)
class SortedScores:
    """ID and OOD scores sorted once; every metric of the pair is then O(n).

    Attributes:
        id: ID scores, ascending, ``[n]``.
        ood: OOD scores, ascending, ``[m]``.
    """

    id: Floats
    ood: Floats

    @classmethod
    def of(cls, id_scores: ArrayLike, ood_scores: ArrayLike) -> SortedScores:
        """Checks and sorts both score arrays."""
        return cls(
            np.sort(as_scores(id_scores, "id_scores")),
            np.sort(as_scores(ood_scores, "ood_scores")),
        )

    @cached_property
    def below(self) -> Ints:
        """Number of ID scores strictly below each OOD score, ``[m]``."""
        return np.searchsorted(self.id, self.ood, side="left")

    @cached_property
    def up_to(self) -> Ints:
        """Number of ID scores below or equal to each OOD score, ``[m]``."""
        return np.searchsorted(self.id, self.ood, side="right")

    def auroc(self) -> float:
        """P(OOD > ID) + P(OOD = ID) / 2."""
        pairs = int(self.below.sum()) + int(self.up_to.sum())
        return pairs / (2 * self.id.size * self.ood.size)

    def fpr_at_tpr(self, tpr: float = 0.95, positive: PositiveClass = "ood") -> float:
        """See :func:`fpr_at_tpr`."""
        threshold = self._threshold(tpr, positive)
        if positive == "ood":
            return 1 - np.searchsorted(self.id, threshold, side="left") / self.id.size
        return np.searchsorted(self.ood, threshold, side="right") / self.ood.size

    def tied_at_threshold(self, tpr: float, positive: PositiveClass) -> float:
        """Share of the images that :meth:`fpr_at_tpr` counts whose score equals the threshold."""
        threshold = self._threshold(tpr, positive)
        return float(np.mean((self.id if positive == "ood" else self.ood) == threshold))

    def _threshold(self, tpr: float, positive: PositiveClass) -> float:
        if not 0 < tpr <= 1:
            raise ValueError(f"tpr: expected a share in (0, 1], got {tpr}")
        if positive == "ood":
            return float(self.ood[self.ood.size - required_count(self.ood.size, tpr)])
        if positive == "id":
            return float(self.id[required_count(self.id.size, tpr) - 1])
        raise ValueError(f"positive: expected 'ood' or 'id', got {positive!r}")

    @property
    def constant(self) -> bool:
        """True when all scores are the same."""
        return bool(min(self.id[0], self.ood[0]) == max(self.id[-1], self.ood[-1]))

    def aupr(self, positive: Literal["in", "out"], method: AuprMethod) -> float:
        """See :func:`aupr`."""
        if positive == "in":  # low scores are found first: everything is mirrored
            return SortedScores(-self.ood[::-1], -self.id[::-1]).aupr("out", method)
        if positive != "out":
            raise ValueError(f"positive: expected 'in' or 'out', got {positive!r}")
        n, m = self.id.size, self.ood.size
        detected, above = (m - np.searchsorted(self.ood, self.ood, side) for side in _SIDES)
        return float(precision_area(detected, n - self.below, above, n - self.up_to, method).mean())


def auroc(id_scores: ArrayLike, ood_scores: ArrayLike) -> float:
    """Area under the ROC curve, ``P(OOD > ID) + P(OOD = ID) / 2``.

    Args:
        id_scores: ``[n]``, higher = more OOD.
        ood_scores: ``[m]``, the same score on OOD samples.

    Returns:
        A share in [0, 1]; 0.5 = no separation.

    Raises:
        ValueError: an empty array or NaN.
    """
    return SortedScores.of(id_scores, ood_scores).auroc()


def fpr_at_tpr(
    id_scores: ArrayLike,
    ood_scores: ArrayLike,
    tpr: float = 0.95,
    positive: PositiveClass = "ood",
) -> float:
    """False positive rate at the first threshold that reaches ``tpr``; lower is better.

    Two definitions share the name "FPR95":

    - ``positive="ood"``: t = the largest threshold with ``share(OOD >= t) >= tpr``; the result is
      ``share(ID >= t)``, ID rejected when 95% of OOD is caught (outlier exposure, arXiv
      1812.04606; OpenOOD v1.5, 2306.09301).
    - ``positive="id"``: t = the smallest threshold with ``share(ID <= t) >= tpr``; the result is
      ``share(OOD <= t)``, OOD accepted when 95% of ID is kept (ODIN, arXiv
      1706.02690; energy, 2010.03759).

    Raises:
        ValueError: an empty array, NaN, ``tpr`` outside (0, 1], or an unknown ``positive``.
    """
    return float(SortedScores.of(id_scores, ood_scores).fpr_at_tpr(tpr, positive))


def aupr(
    id_scores: ArrayLike,
    ood_scores: ArrayLike,
    positive: Literal["in", "out"] = "out",
    method: AuprMethod = "average_precision",
) -> float:
    """Area under the precision-recall curve with ID (``in``) or OOD (``out``) as positives.

    ``average_precision`` is ``sum_k (R_k - R_{k-1}) P_k``; ``trapezoid`` is
    ``sum_k (R_k - R_{k-1}) (P_k + P_{k-1}) / 2`` with the end point (R, P) = (0, 1), as OpenOOD
    computes it. They differ most with ties: constant scores give pi and (1 + pi) / 2, with pi the
    share of positives.

    Raises:
        ValueError: an empty array, NaN, or an unknown ``positive`` or ``method``.
    """
    return SortedScores.of(id_scores, ood_scores).aupr(positive, method)


def roc_curve(id_scores: ArrayLike, ood_scores: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """ROC curve with OOD as the positive class and no point dropped.

    Returns:
        ``(fpr, tpr, thresholds)``, each ``[k + 1]`` for k distinct scores, thresholds falling from
        +inf; a sample is called OOD when its score is >= the threshold.
    """
    scores = SortedScores.of(id_scores, ood_scores)
    thresholds = np.unique(np.concatenate([scores.id, scores.ood]))[::-1]
    fpr, tpr = (1 - np.searchsorted(of, thresholds) / of.size for of in (scores.id, scores.ood))
    return np.append(0.0, fpr), np.append(0.0, tpr), np.append(np.inf, thresholds)
