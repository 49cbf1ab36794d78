"""NCI: alignment of the centred feature with the weights of its class, and its length."""

from __future__ import annotations

from typing import Self

from torch import Tensor

from ood_lab.common.arguments import NotNegative
from ood_lab.detectors.base import FittedDetector, with_settings
from ood_lab.detectors.support.chunked_arithmetic import map_rows
from ood_lab.detectors.support.compute_device import head_on_device
from ood_lab.features.bank import FeatureBank

#: Length below which x − μ counts as zero and is not scaled to length 1.
SMALLEST = 1e-12


@with_settings
class NCI(FittedDetector):
    r"""Neural-collapse-inspired score (arXiv 2311.01479).

    .. math:: s(x) = -\frac{w_{\hat y}^\top (x - \mu)}{\|x - \mu\|_2} - \alpha \|x\|_1

    with the weights w of the predicted class ŷ and the mean μ of the fit split; labels are not
    used. Own: pytorch-ood's formula is the same; it takes ŷ from its copy of the head.

    Args:
        alpha: weight of the length, from 0.
        fit_split: images that μ is the mean of.
    """

    moments = ("means",)
    needs_rows = False
    reads = ("features", "logits", "head")
    formula = "−w_ŷᵀ(x − μ)/‖x − μ‖ − α‖x‖₁"
    suspicious = "the features are not aligned with the weights of their class"

    alpha: NotNegative = 1e-4

    def fit(self, bank: FeatureBank) -> Self:
        """Learns ``mean [D]``."""
        self.fitted = {"mean": self.statistics(bank).mean()}
        return self

    def score(self, bank: FeatureBank) -> Tensor:
        """Negative alignment and length, ``[N]``."""
        (mean,), (weight, _) = self.fitted_tensors("mean"), head_on_device(bank)

        def alignment(x: Tensor, z: Tensor) -> Tensor:
            centered = x - mean
            along = (centered * weight[z.argmax(dim=1)]).sum(dim=1)
            unit = along / centered.norm(dim=1).clamp(min=SMALLEST)
            return unit + self.alpha * x.abs().sum(dim=1)

        return -map_rows(alignment, bank.features, bank.logits)
