"""SumProb: sum of the label-wise probabilities."""

from __future__ import annotations

from torch import Tensor

from ood_lab.detectors.support.logit_detector import LogitDetector


class SumProb(LogitDetector):
    r"""Negative sum of the probabilities of a multi-label head (arXiv 2109.14162).

    .. math:: s(x) = -\sum_c \sigma(z_c), \quad z \in \mathbb{R}^C

    with the sigmoid σ: minus the expected number of classes in the image. Nothing is fitted and
    there is nothing to set.
    """

    reads = ("logits", "level")
    multilabel = True
    formula = "−Σ_c σ(z_c)"
    suspicious = "all classes together have small probabilities"

    def of_logits(self, z: Tensor) -> Tensor:
        """Negative sum, ``[n]``."""
        return -z.sigmoid().sum(dim=1)
