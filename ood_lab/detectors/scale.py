"""SCALE: energy of the logits from scaled features."""

from __future__ import annotations

from torch import Tensor

from ood_lab.detectors.base import Detector, with_settings
from ood_lab.detectors.support.feature_shaping import (
    head_energy,
    kept_count,
    scale_ratio,
)
from ood_lab.detectors.support.requirements import Percentile, require_non_negative
from ood_lab.features.bank import FeatureBank


@with_settings
class SCALE(Detector):
    r"""Energy of features scaled by how concentrated they are (arXiv 2310.00227).

    .. math::
        r = \frac{\sum_d x_d}{\sum_{d \in \mathrm{top}\ k} x_d}, \qquad
        s(x) = -\log \sum_c \exp\big(e^r W x + b\big)_c

    with k = D − round(D p / 100) (at least one). x is the pooled feature, as in the authors' and
    OpenOOD's code; pytorch-ood's class takes the maps before pooling. Nothing is fitted.

    Args:
        percentile: p in [0, 100].
        force: accept features below 0, where r can explode. The method presumes ReLU features.
    """

    reads = ("features", "head")
    formula = "−E(x eʳ), r = Σx/Σ of the largest entries"
    suspicious = "the energy is small after scaling by how concentrated the features are"

    percentile: Percentile = 85
    force: bool = False

    def score(self, bank: FeatureBank) -> Tensor:
        """Energy of the logits of scaled features, ``[N]``."""
        require_non_negative(self, bank, self.force)
        k = kept_count(bank.width, self.percentile)
        return head_energy(bank, lambda x: x * scale_ratio(x, k).exp())
