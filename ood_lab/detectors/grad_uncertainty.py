"""GradUncertainty: norm of the last layer's gradient towards a uniform target."""

from __future__ import annotations

from torch import Tensor

from ood_lab.common.tensor_arithmetic import squared_norms
from ood_lab.detectors.base import Detector
from ood_lab.detectors.support.chunked_arithmetic import map_rows
from ood_lab.features.bank import FeatureBank


class GradUncertainty(Detector):
    r"""Negative squared gradient norm at the last layer's weight (arXiv 2008.08030).

    .. math::
        s(x) = -\Big\| \frac{\partial}{\partial W} \sum_c -\log p_c \Big\|_2^2
             = -\|C p - 1\|_2^2 \, \|x\|_2^2, \quad p = \mathrm{softmax}(z)

    exact, because the gradient is the outer product of C p − 1 ``[C]`` and x ``[D]``. The paper
    trains a classifier on the norms of all layers; the score and its sign are pytorch-ood's,
    taken at the last layer. Nothing is fitted; the bias is skipped.

    Own: pytorch-ood needs the network and a backward pass per image, whose float32 gradient breaks
    down where a probability is below 1e-12, on most images of a confident network.
    """

    reads = ("features", "logits")
    formula = "−‖C p − 1‖² ‖x‖²"
    suspicious = "the squared gradient towards a uniform prediction is small"

    def score(self, bank: FeatureBank) -> Tensor:
        """Negative squared norm, ``[N]``, up to 0."""

        def norm(x: Tensor, z: Tensor) -> Tensor:
            p = z.softmax(dim=1)
            return squared_norms(z.shape[1] * p - 1) * squared_norms(x)

        return -map_rows(norm, bank.features, bank.logits)
