"""MLS: maximum logit."""

from __future__ import annotations

from pytorch_ood.detector import MaxLogit
from torch import Tensor

from ood_lab.detectors.support.logit_detector import LogitDetector


class MLS(LogitDetector):
    r"""Negative maximum logit (arXiv 1911.11132).

    .. math:: s(x) = -\max_c z_c, \quad z \in \mathbb{R}^C

    Nothing is fitted and there is nothing to set. The formula is pytorch-ood's ``MaxLogit``,
    which is right.
    """

    reads = ("logits", "level")
    multilabel = True
    formula = "−max z"
    suspicious = "no class has a large logit"

    def of_logits(self, z: Tensor) -> Tensor:
        """-max logit, ``[n]``."""
        return MaxLogit.score(z)
