"""MSP: maximum softmax probability."""

from __future__ import annotations

from pytorch_ood.detector import MaxSoftmax
from torch import Tensor

from ood_lab.common.arguments import Positive
from ood_lab.detectors.base import with_settings
from ood_lab.detectors.support.logit_detector import LogitDetector


@with_settings
class MSP(LogitDetector):
    r"""Negative maximum softmax probability (arXiv 1610.02136).

    .. math:: s(x) = -\max_c \mathrm{softmax}(z / T)_c, \quad z \in \mathbb{R}^C

    Nothing is fitted. The formula is pytorch-ood's ``MaxSoftmax``, which is right; it is given
    float64 logits because float32 ties every image whose probability is within 6e-8 of 1.

    Args:
        temperature: T > 0.
    """

    formula = "−max p at T"
    suspicious = "no class is probable"

    temperature: Positive = 1.0

    def of_logits(self, z: Tensor) -> Tensor:
        """-max softmax, ``[n]`` in [-1, -1/C]."""
        return MaxSoftmax.score(z, t=self.temperature)
