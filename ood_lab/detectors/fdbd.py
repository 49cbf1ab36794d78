"""fDBD: distance to the decision boundaries, in units of the distance to the mean."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from ood_lab.detectors.base import FittedDetector, with_settings
from ood_lab.detectors.support.chunked_arithmetic import map_rows
from ood_lab.detectors.support.requirements import require_two_classes
from ood_lab.features.bank import FeatureBank

#: Length below which the distance to the mean counts as this much, so that scores stay finite.
SMALLEST = 1e-12


@with_settings
class FDBD(FittedDetector):
    r"""Fast decision-boundary distance (arXiv 2312.11536).

    .. math::
        s(x) = -\frac{1}{C - 1} \sum_{c \ne \hat y}
        \frac{z_{\hat y} - z_c}{\|w_{\hat y} - w_c\|_2} \cdot \frac{1}{\|x - \mu\|_2}

    with the rows w of the head's weight and the mean μ of the fit split; labels are not used. A
    class whose weights equal those of ŷ has no boundary with it and adds 0. With
    ``distance_as_normalizer=false`` the last factor is 1/‖x‖: an option of OpenOOD's, not the
    paper's, and another detector.

    Own: pytorch-ood builds C×C×D differences of weights, 8 GB for a ResNet-50 on ImageNet; here
    only their C×C lengths are kept.

    Args:
        distance_as_normalizer: divide by ‖x − μ‖; else by ‖x‖.
        fit_split: images that μ is the mean of.
    """

    moments = ("means",)
    needs_rows = False
    reads = ("features", "logits", "head")
    formula = "−mean over c ≠ ŷ of (z_ŷ − z_c)/‖w_ŷ − w_c‖, over ‖x − μ‖"
    suspicious = "the features are near a decision boundary"

    distance_as_normalizer: bool = True

    def fit_memory(self, n: int, d: int, c: int) -> int:
        """Lengths of differences of weights ``[C, C]``, their inverse, weights ``[C, D]``."""
        return 8 * (3 * c * c + c * d)

    def fit(self, bank: FeatureBank) -> Self:
        """Learns ``mean [D]`` and ``inverse [C, C]``, 1/‖w_k − w_c‖ (0 for equal weights)."""
        require_two_classes(self, bank)
        weight = bank.head_weight.double()
        # Not by products: equal weights must have a distance of exactly 0.
        length = torch.cdist(weight, weight, compute_mode="donot_use_mm_for_euclid_dist")
        inverse = torch.where(length > 0, 1 / length, 0)
        self.fitted = {"mean": self.statistics(bank).mean(), "inverse": inverse}
        return self

    def score(self, bank: FeatureBank) -> Tensor:
        """Negative mean distance, relative, ``[N]``, up to 0."""
        mean, inverse = self.fitted_tensors("mean", "inverse")
        origin = mean if self.distance_as_normalizer else torch.zeros_like(mean)

        def distance(x: Tensor, z: Tensor) -> Tensor:
            top, predicted = z.max(dim=1, keepdim=True)
            total = ((top - z) * inverse[predicted[:, 0]]).sum(dim=1)
            return total / (x - origin).norm(dim=1).clamp(min=SMALLEST)

        return -map_rows(distance, bank.features, bank.logits) / (bank.num_classes - 1)
