"""ODIN: maximum softmax at high temperature of an image moved towards its predicted class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from ood_lab.common.arguments import Positive
from ood_lab.common.tensor_file import Tensors
from ood_lab.detectors.base import with_settings
from ood_lab.detectors.support.network_scores import NetworkDetector, input_step, require_std, sign
from ood_lab.features.bank import FeatureBank
from ood_lab.features.extraction_hooks import BankColumn, GradientColumn
from ood_lab.models.backbone import Backbone
from ood_lab.models.output import Output


class ODINColumn(GradientColumn):
    """T·(log C + log max_c softmax(f(x̃)/T)_c) of the perturbed image x̃, ``[B]``.

    The logarithm and the shift keep float32 apart where it matters: at T = 1000 the softmax
    itself differs from 1/C only in its last digits and ties images.

    Args:
        temperature: T > 0.
        epsilon: step in units of the un-normalised image.
        std: the σ by which images were divided; None = the backbone's own.
    """

    name = "odin"

    def __init__(self, temperature: float, epsilon: float, std: Sequence[float] | None) -> None:
        self.temperature, self.epsilon = temperature, epsilon
        self.std = None if std is None else list(std)
        sigma = "own" if std is None else "_".join(f"{s:g}" for s in std)
        self.key = f"{self.name}(temperature={temperature:g},epsilon={epsilon:g},std={sigma})"
        self.direction_key = f"cross_entropy(temperature={temperature:g})"

    def layers(self, backbone: Backbone) -> list[str]:
        """No layers: ODIN reads logits and the input gradient only."""
        require_std(self.name, backbone, self.std)
        return []

    def direction(self, logits: Tensor) -> Tensor:
        """∂/∂z of T·CE(z/T, ŷ), which is softmax(z/T) − onehot(ŷ).

        The factor T keeps the sign, and keeps half precision away from underflow; images
        do not mix, as nothing is averaged.
        """
        dz = (logits.double() / self.temperature).softmax(dim=1)
        return dz.scatter_add(1, logits.argmax(dim=1, keepdim=True), -torch.ones_like(dz[:, :1]))

    def of_gradient(
        self,
        backbone: Backbone,
        image: Tensor,
        output: Output,
        maps: Tensors,
        gradient: Sequence[Tensor],
    ) -> Tensor:
        """One forward pass of x̃."""
        step = input_step(self.epsilon, require_std(self.name, backbone, self.std), image)
        logits = backbone(image - step * self._sign(gradient[0])).logits.double()
        below_top = (logits - logits.amax(dim=1, keepdim=True)) / self.temperature
        return (-self.temperature * below_top.exp().mean(dim=1).log()).float()

    def _sign(self, gradient: Tensor) -> Tensor:
        """The direction in which each element moves, ``[B, 3, H, W]`` of -1, 0 and 1."""
        return sign(gradient)


@with_settings
class ODIN(NetworkDetector):
    r"""Negative log maximum softmax of the perturbed image at temperature T (arXiv 1706.02690).

    .. math::
        \tilde x = x - \tfrac{\epsilon}{\sigma}\,\mathrm{sign}\,\nabla_x
        \mathrm{CE}(f(x)/T, \hat y), \qquad
        s = -\log\max_c \mathrm{softmax}(f(\tilde x)/T)_c

    with sign(0) = +1 and σ the standard deviation of the backbone's own normalisation, both as
    in the authors' code; OpenOOD takes σ from a table by the name of the data set instead.

    Computed inside the extraction pass, whose forward supplies f(x): it adds one backward pass
    (no parameter gradients) and one forward pass per image. pytorch-ood's version needs σ given
    by hand, repeats the first forward and returns the float32 softmax, which ties at high T;
    its ranking is the same otherwise.

    Args:
        temperature: T > 0.
        epsilon: step in units of the un-normalised image in [0, 1].
        std: overrides σ, one value per channel (``[1, 1, 1]`` = a step on the normalised image).
    """

    reads = ("logits", "gradients")
    formula = "−log max softmax(f(x̃)/T), all input elements moved by ε/σ"
    suspicious = "a small step of the pixels hardly raises the confidence"
    column_type = ODINColumn

    temperature: Positive = 1000.0
    epsilon: float = 0.0014
    std: Sequence[float] | None = None

    @cached_property
    def extraction_hook(self) -> BankColumn:
        """The score of the changed image."""
        return self.column_type(self.temperature, self.epsilon, self.std)

    def score(self, bank: FeatureBank) -> Tensor:
        """−log max softmax of x̃ at T, between 0 and log C."""
        return math.log(bank.num_classes) - self.values(bank).double() / self.temperature
