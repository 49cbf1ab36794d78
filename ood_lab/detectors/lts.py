"""LTS: energy of scaled logits."""

from __future__ import annotations

from pytorch_ood.detector import EnergyBased
from torch import Tensor

from ood_lab.detectors.base import Detector, with_settings
from ood_lab.detectors.support.chunked_arithmetic import map_rows
from ood_lab.detectors.support.feature_shaping import kept_count, scale_ratio
from ood_lab.detectors.support.requirements import Percentile
from ood_lab.features.bank import FeatureBank


@with_settings
class LTS(Detector):
    r"""Logit scaling (arXiv 2409.01175).

    .. math::
        r = \frac{\sum_d x_d^+}{\sum_{d \in \mathrm{top}\ k} x_d^+}, \qquad
        s(x) = -\log \sum_c \exp(r^2 z_c)

    with x⁺ = max(x, 0) and k = D − round(D p / 100) (at least one), so that features below 0 are
    allowed. Nothing is fitted. Own: pytorch-ood's formula is the same in float32; a vector
    without a positive feature is NaN there and has r = 1 here.

    Args:
        percentile: p in [0, 100]; 95 keeps 5% of the entries.
    """

    reads = ("features", "logits", "level")
    formula = "−log Σ exp(r² z), r of max(x, 0)"
    suspicious = "the energy is small after scaling of the logits"

    percentile: Percentile = 95

    def score(self, bank: FeatureBank) -> Tensor:
        """Energy of the scaled logits, ``[N]``."""
        k = kept_count(bank.width, self.percentile)

        def energy(x: Tensor, z: Tensor) -> Tensor:
            return EnergyBased.score(scale_ratio(x.relu(), k).square() * z)

        return map_rows(energy, bank.features, bank.logits)
