"""Detectors that score what the extraction pass computed, and a step of ε on its images."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from ood_lab.detectors.base import Detector, DetectorRefusal
from ood_lab.detectors.support.layer_probe import ChosenLayers
from ood_lab.detectors.support.requirements import require_column
from ood_lab.features.bank import FeatureBank
from ood_lab.features.extraction_hooks import BankColumn
from ood_lab.models.backbone import Backbone
from ood_lab.models.head_kind import Part
from ood_lab.schema.run_record import Facts


class NetworkDetector(Detector):
    """A detector that needs the network: its ``extraction_hook`` runs in the extraction pass.

    It is computed with the features, always one and the same object; ``fit`` and ``score`` only
    read it from the bank.
    """

    reads: tuple[Part, ...] = ("features", "logits", "level", "head", "maps")

    @property
    @abstractmethod
    def extraction_hook(self) -> BankColumn:
        """The column that the extraction pass computes for this detector."""

    def values(self, bank: FeatureBank) -> Tensor:
        """The column's values, ``[N, ...]``; needs no part of the bank that only a fit uses."""
        return require_column(self, bank, self.extraction_hook)

    def describe(self) -> Facts:
        """With the sub-modules of the network that were chosen."""
        settings, column = super().describe(), self.extraction_hook
        if isinstance(column, ChosenLayers) and column.names:
            settings[column.setting] = column.names
        return settings


def require_std(name: str, backbone: Backbone, std: Sequence[float] | None) -> Sequence[float]:
    """The σ by which images were divided: ``std``, or where it is None the backbone's own.

    Raises:
        DetectorRefusal: neither is known; names the detector ``name``.
    """
    if std is None and "std" not in backbone.data_config:
        raise DetectorRefusal(
            f"{name}: the backbone does not say how its images are normalised; give "
            f"detector.{name}.std=[r,g,b]"
        )
    return std or backbone.data_config["std"]


def input_step(epsilon: float, std: Sequence[float], image: Tensor) -> Tensor:
    """ε/σ of every channel of normalised images, ``[3, 1, 1]`` on the device of ``image``."""
    sigma = torch.tensor(std, dtype=image.dtype).to(image.device, non_blocking=True)
    return (epsilon / sigma).view(-1, 1, 1)


def sign(gradient: Tensor) -> Tensor:
    """1 where the gradient is 0 or above, else -1, as the authors of ODIN have it."""
    return torch.where(gradient >= 0, 1.0, -1.0).to(gradient.dtype)
