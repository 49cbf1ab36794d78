"""A threshold and p-values for a fitted detector, from held-out ID images."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from ood_lab.detectors.base import Detector
from ood_lab.errors import UserError
from ood_lab.metrics.ood import required_count

#: The rules, each with its default level.
DEFAULT_LEVELS = {"tpr": 0.95, "conformal": 0.05}


@dataclass(frozen=True)
class Rule:
    r"""How a threshold t follows from n held-out ID scores; an image is OOD when s > t.

    - ``tpr``: t = the smallest held-out score with share(scores ≤ t) ≥ level, so that at least
      that share of the held-out images is accepted.
    - ``conformal``: s > t exactly where the p-value
      :math:`p(s) = (1 + \#\{\text{held-out} \ge s\}) / (n + 1)` is at most level. For an ID image
      exchangeable with the held-out ones that happens with probability at most level
      (Vovk et al. 2005; for OOD detection arXiv 2104.08279).

    Args:
        name: ``tpr`` or ``conformal``.
        level: the share accepted, or the largest false alarm rate; between 0 and 1.

    Raises:
        UserError: an unknown name, a level out of range.
    """

    name: str
    level: float

    def __post_init__(self) -> None:
        if self.name not in DEFAULT_LEVELS:
            raise UserError(f"rule={self.name} is unknown: choose {' or '.join(DEFAULT_LEVELS)}")
        if not 0 < self.level < 1:
            key = "tpr" if self.name == "tpr" else "alpha"
            raise UserError(f"{key}={self.level} must lie between 0 and 1")

    def __str__(self) -> str:
        return f"{'tpr' if self.name == 'tpr' else 'conformal alpha'} {self.level:g}"

    def threshold(self, id_scores: Tensor) -> float:
        """t, from ascending held-out scores ``[n]``.

        Raises:
            UserError: too few images for any p-value to reach the level.
        """
        n = len(id_scores)
        if self.name == "tpr":
            return float(id_scores[required_count(n, self.level) - 1])
        # p <= level allows `above` held-out scores at or beyond s, less the one added to both.
        above = math.floor(self.level * (n + 1) + 1e-9)
        if above < 1:
            raise UserError(
                f"alpha={self.level:g} needs {math.ceil(1 / self.level) - 1:,} held-out ID images "
                f"at least, there are {n:,}: raise alpha or hold out more"
            )
        return float(id_scores[n - above])


@dataclass(frozen=True)
class CalibratedDetector:
    """A fitted detector and what its scores mean.

    Attributes:
        detector: fitted.
        id_scores: of the held-out ID images, ``[n] float64``, ascending.
        rule: what ``threshold`` follows from.
        threshold: above it, an image is OOD.
        classes: names of the ID classes.
        weights_sha256: of the backbone whose features it was fitted on.
        transform: of the images, printed.
    """

    detector: Detector
    id_scores: Tensor
    rule: Rule
    threshold: float
    classes: list[str]
    weights_sha256: str
    transform: str

    @classmethod
    def of(
        cls,
        detector: Detector,
        id_scores: Tensor,
        rule: Rule,
        *,
        classes: list[str],
        weights_sha256: str,
        transform: str,
    ) -> Self:
        """From scores ``[n]`` of ID images that the detector was not fitted on, in any order.

        Raises:
            UserError: too few of them.
        """
        if len(id_scores) == 0:
            raise UserError(f"{detector.name}: no held-out ID image is left for the threshold")
        ordered = id_scores.double().sort().values
        threshold = rule.threshold(ordered)
        return cls(detector, ordered, rule, threshold, classes, weights_sha256, transform)

    def under(self, rule: Rule) -> Self:
        """The same detector with the threshold of another rule."""
        return replace(self, rule=rule, threshold=rule.threshold(self.id_scores))

    def p_values(self, scores: Tensor) -> Tensor:
        """Conformal p-values (see :class:`Rule`) of scores ``[N]``: ``[N] float64`` in (0, 1]."""
        n = len(self.id_scores)
        at_least = n - torch.searchsorted(self.id_scores, scores.double().contiguous())
        return (1 + at_least.double()) / (n + 1)

    def is_ood(self, scores: Tensor) -> Tensor:
        """``[N] bool``: score above the threshold."""
        return scores.double() > self.threshold

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
