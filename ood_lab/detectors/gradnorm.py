"""GradNorm: norm of the gradient that pulls the prediction towards uniform."""

from __future__ import annotations

from torch import Tensor

from ood_lab.common.arguments import Positive
from ood_lab.detectors.base import Detector, with_settings
from ood_lab.detectors.support.chunked_arithmetic import map_rows
from ood_lab.features.bank import FeatureBank


@with_settings
class GradNorm(Detector):
    r"""Negative L1 norm of the gradient at the last layer's weight (arXiv 2110.00218).

    .. math::
        s(x) = -\Big\| \frac{\partial}{\partial W} \sum_c -\log \mathrm{softmax}(z/T)_c \Big\|_1
             = -\frac1T \sum_c |1 - C p_c| \cdot \sum_d |x_d|,
        \quad p = \mathrm{softmax}(z/T)

    exact, because the gradient is the outer product of (C p - 1)/T ``[C]`` and x ``[D]``.
    Nothing is fitted; the bias is skipped, as in the paper.

    Own: pytorch-ood needs the network and a backward pass per image (micro-batches of 32), and by
    default takes the gradient of all parameters, which is another detector.

    Args:
        temperature: T > 0.
    """

    reads = ("features", "logits")
    formula = "−Σ|1 − C p| · ‖x‖₁"
    suspicious = "the gradient towards a uniform prediction is small"

    temperature: Positive = 1.0

    def score(self, bank: FeatureBank) -> Tensor:
        """Negative gradient norm, ``[N]``, up to 0."""

        def norm(x: Tensor, z: Tensor) -> Tensor:
            p = (z / self.temperature).softmax(dim=1)
            return (z.shape[1] * p - 1).abs().sum(dim=1) * x.abs().sum(dim=1)

        return -map_rows(norm, bank.features, bank.logits) / self.temperature
