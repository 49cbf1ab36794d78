"""p-values and a verdict for a fitted detector, from held-out ID images."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from ood_lab.detectors.base import Detector, checked_score
from ood_lab.errors import UserError
from ood_lab.features.bank import FeatureBank

#: The largest false alarm rate on ID images, where the user names none.
DEFAULT_ALPHA = 0.05


def least_held_out(alpha: float) -> int:
    """The smallest n at which a p-value, which is at least ``1 / (n + 1)``, can be at most alpha.

    Judged by the division itself, as p-values are: 19 images for 0.05.
    """
    n = max(math.ceil(1 / alpha) - 2, 0)
    while 1 / (n + 1) > alpha:
        n += 1
    return n


def too_few(n: int, alpha: float) -> str | None:
    """Says that no p-value of ``n`` held-out images reaches alpha, with a remedy; else None."""
    least = least_held_out(alpha)
    if n >= least:
        return None
    return (
        f"task.alpha={alpha:g} needs {least:,} held-out ID images at least, there are {n:,}, and "
        f"no p-value is below 1/{n + 1:,}: hold out more (val), or raise task.alpha"
    )


@dataclass(frozen=True)
class CalibratedDetector:
    r"""A fitted detector and what its scores mean.

    The p-value of a score s, from n held-out ID scores, is
    :math:`p(s) = (1 + \#\{\text{held-out} \ge s\}) / (n + 1)`, and an image is OOD exactly where
    p(s) ≤ alpha. For an ID image exchangeable with the held-out ones that happens with probability
    at most alpha (Vovk et al. 2005; for OOD detection arXiv 2104.08279).

    Attributes:
        detector: fitted.
        id_scores: of the held-out ID images, ``[n] float64``, ascending.
        alpha: the largest false alarm rate on ID images; between 0 and 1.
        classes: names of the ID classes.
        weights_sha256: of the backbone whose features it was fitted on.
        transform: of the images, printed.

    Raises:
        UserError: alpha is out of range, or there are too few held-out images for it.
    """

    detector: Detector
    id_scores: Tensor
    alpha: float
    classes: list[str]
    weights_sha256: str
    transform: str

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise UserError(f"task.alpha={self.alpha} must lie between 0 and 1")
        if reason := too_few(len(self.id_scores), self.alpha):
            raise UserError(f"{self.detector.name}: {reason}")

    @classmethod
    def of(
        cls,
        detector: Detector,
        id_scores: Tensor,
        alpha: float,
        *,
        classes: list[str],
        weights_sha256: str,
        transform: str,
    ) -> Self:
        """From scores ``[n]`` of ID images that the detector was not fitted on, in any order.

        Raises:
            UserError: see the class.
        """
        ordered = id_scores.double().sort().values
        return cls(detector, ordered, alpha, classes, weights_sha256, transform)

    def at(self, alpha: float) -> Self:
        """The same detector at another false alarm rate."""
        return replace(self, alpha=alpha)

    @property
    def threshold(self) -> float:
        """The held-out score above which an image is OOD: p ≤ alpha for scores above it alone."""
        ordered = self.id_scores
        return float(ordered[~self.is_ood(ordered)][-1])

    def score(self, bank: FeatureBank) -> Tensor:
        """Scores of the rows of a bank, ``[N] float64``, higher = more OOD.

        Raises:
            UserError: see :func:`~ood_lab.detectors.base.checked_score`.
        """
        return checked_score(self.detector, bank)

    def p_values(self, scores: Tensor) -> Tensor:
        """Conformal p-values (see the class) of scores ``[N]``: ``[N] float64`` in (0, 1]."""
        n = len(self.id_scores)
        at_least = n - torch.searchsorted(self.id_scores, scores.double().contiguous())
        return (1 + at_least.double()) / (n + 1)

    def is_ood(self, scores: Tensor) -> Tensor:
        """``[N] bool``: the p-value is at most alpha."""
        return self.p_values(scores) <= self.alpha

    def check_backbone(self, weights_sha256: str, transform: str) -> None:
        """Raises :class:`UserError` where its scores would mean nothing."""
        if weights_sha256 != self.weights_sha256:
            raise UserError(
                f"{self.detector.name} was fitted on a backbone with weights "
                f"{self.weights_sha256[:12]}, this one has {weights_sha256[:12]}: give the ckpt "
                "that it was fitted on, or fit it again"
            )
        if transform != self.transform:
            raise UserError(
                f"{self.detector.name} was fitted on images transformed by {self.transform}, the "
                f"backbone now uses {transform}: give the same input settings, or fit it again"
            )
