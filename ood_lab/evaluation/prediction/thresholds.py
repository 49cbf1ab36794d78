"""Thresholds on the score that are given by hand, or made of OOD images."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from ood_lab.common.errors import UserError
from ood_lab.common.hints import check_known
from ood_lab.data.dataset import Splits
from ood_lab.detectors import Detector, checked_score
from ood_lab.features.bank import FeatureBank
from ood_lab.metrics import threshold_at_tpr


@dataclass(frozen=True)
class Thresholds:
    """What decides instead of a false alarm rate: an image is OOD from the threshold on.

    Attributes:
        scores: the score for the only detector, or by detector.
        tpr: the fraction of OOD images that are detected.
        reached: by detector, the fraction that is, once it has been asked for.
    """

    scores: float | Mapping[str, float] | None = None
    tpr: float | None = None
    reached: dict[str, float] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.scores is not None or self.tpr is not None

    def check(self, alpha: float | None) -> None:
        """Raises :class:`UserError` where two settings decide, or a threshold is not finite."""
        settings = {"task.alpha": alpha, "task.threshold": self.scores, "task.tpr": self.tpr}
        chosen = [name for name, value in settings.items() if value is not None]
        if len(chosen) > 1:
            raise UserError(f"{' and '.join(chosen)} exclude each other: give one of them")
        values = self.scores.values() if isinstance(self.scores, Mapping) else [self.scores]
        if wrong := [v for v in values if v is not None and not math.isfinite(v)]:
            raise UserError(f"task.threshold={wrong[0]}: give a finite number")

    def check_detectors(self, names: Collection[str]) -> None:
        """Raises :class:`UserError` where the thresholds are not those of these detectors."""
        if self.scores is None:
            return
        if not isinstance(self.scores, Mapping):
            if len(names) > 1:
                raise UserError(
                    f"task.threshold={self.scores:g} is one score for {len(names)} detectors: "
                    "choose one (detector=[knn]), or give 'task.threshold={knn: 0.5, msp: -0.9}'"
                )
            return
        check_known(self.scores, names, "task.threshold names '{name}'")
        if missing := [name for name in names if name not in self.scores]:
            raise UserError(f"task.threshold has no score for {', '.join(missing)}")

    def made_of(self, ood: Splits) -> str | None:
        """What the thresholds are made of, where they are not known beforehand."""
        if self.tpr is None:
            return None
        return f"{self.tpr} of {[data.identity for data in ood.values()]}"

    def of(self, name: str, detector: Detector, ood: Sequence[FeatureBank]) -> float:
        """The threshold of a fitted detector, by its scores of the OOD images.

        Raises:
            UserError: see :func:`~ood_lab.detectors.base.checked_score`.
        """
        if self.tpr is None:
            score = self.scores[name] if isinstance(self.scores, Mapping) else self.scores
            return float(score)  # type: ignore[arg-type]  # asked for only where one is given
        of_ood = torch.cat([checked_score(detector, bank) for bank in ood])
        threshold = threshold_at_tpr(of_ood.numpy(), self.tpr)
        self.reached[name] = float((of_ood >= threshold).double().mean())
        return threshold
