"""EBO: energy of the logits."""

from __future__ import annotations

from pytorch_ood.detector import EnergyBased
from torch import Tensor

from ood_lab.common.arguments import Positive
from ood_lab.detectors.base import with_settings
from ood_lab.detectors.support.logit_detector import LogitDetector


@with_settings
class EBO(LogitDetector):
    r"""Free energy of the logits (arXiv 2010.03759).

    .. math:: s(x) = -T \log \sum_c e^{z_c / T}, \quad z \in \mathbb{R}^C

    Nothing is fitted. The formula is pytorch-ood's ``EnergyBased``, which is right.

    Args:
        temperature: T > 0.
    """

    reads = ("logits", "level")
    formula = "−T log Σ exp(z/T)"
    suspicious = "all logits together are small"

    temperature: Positive = 1.0

    def of_logits(self, z: Tensor) -> Tensor:
        """Energy, ``[n]``."""
        return EnergyBased.score(z, t=self.temperature)
