"""Detectors whose score is a function of the logits of one image."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from ood_lab.detectors.base import Detector
from ood_lab.detectors.support.chunked_arithmetic import map_rows
from ood_lab.features.bank import FeatureBank
from ood_lab.models.head_kind import Part


class LogitDetector(Detector):
    """A detector that scores every image by its logits."""

    reads: tuple[Part, ...] = ("logits",)

    @abstractmethod
    def of_logits(self, z: Tensor) -> Tensor:
        """Scores ``[n]`` of logits ``[n, C] float64``, where detectors compute."""

    def score(self, bank: FeatureBank) -> Tensor:
        """:meth:`of_logits` of every row, ``[N]``."""
        return map_rows(self.of_logits, bank.logits)
