"""MLS: maximum logit."""

from __future__ import annotations

from pytorch_ood.detector import MaxLogit
from torch import Tensor

from ood_lab.detectors.base import Detector
from ood_lab.detectors.support.chunked_arithmetic import map_rows
from ood_lab.features.bank import FeatureBank


class MLS(Detector):
    r"""Negative maximum logit (arXiv 1911.11132).

    .. math:: s(x) = -\max_c z_c, \quad z \in \mathbb{R}^C

    Nothing is fitted and there is nothing to set. The formula is pytorch-ood's ``MaxLogit``,
    which is right.
    """

    name = "mls"
    reads = ("logits", "level")
    default = True
    multilabel = True
    formula = "−max z"
    source = "1911.11132"
    suspicious = "no class has a large logit"

    def score(self, bank: FeatureBank) -> Tensor:
        """-max logit, ``[N]``."""
        return map_rows(MaxLogit.score, bank.logits)
