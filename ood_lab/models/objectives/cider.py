"""CIDER: compact classes around prototypes that are far from each other."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ood_lab.common.arguments import Share, with_settings
from ood_lab.common.tensor_file import Tensors
from ood_lab.models.backbone import Backbone
from ood_lab.models.objectives.base import Step, Weight
from ood_lab.models.objectives.projected import Projected


@with_settings
class CIDER(Projected):
    r"""Compactness and dispersion of projections z on the unit sphere (arXiv 2203.04450).

    .. math::
        \mathrm{compact} \cdot \mathrm{CE}(z^\top \mu / \tau, y) + \mathrm{disperse} \cdot
        \tfrac1C \sum_c \log \tfrac1{C - 1} \sum_{k \ne c} \exp(\mu_c^\top \mu_k / \tau)

    Each image moves the prototype of its class: ``μ ← unit(momentum μ + (1 - momentum) z)``, and
    gradients of the second term reach z through it. A prototype begins as its first image, where
    the authors take a mean of ID train. Score: detector ``knn``, which reads normalised
    penultimate features.

    Args:
        compact: weight of the first term.
        disperse: weight of the second term.
        momentum: of the prototypes; the authors take 0.5 on CIFAR-100.
        width: of the projections.
        temperature: τ.
    """

    compact: Weight = 2.0
    disperse: Weight = 1.0
    momentum: Share = 0.95

    def build(self, backbone: Backbone) -> None:
        """Adds the projection and prototypes ``[C, d]``."""
        super().build(backbone)
        self.register_buffer("prototypes", torch.zeros(backbone.num_classes, self.width))

    def of_projections(self, step: Step, features: Tensor, z: Tensor, label: Tensor) -> Tensors:
        """Both terms; training moves the prototypes first."""
        prototypes = self.prototypes
        if step.training:
            prototypes = self.moved(z, label)
            self.prototypes.copy_(prototypes.detach())
        pairs = prototypes @ prototypes.T / self.temperature
        same = torch.eye(len(pairs), dtype=torch.bool, device=pairs.device)
        spread = pairs.masked_fill(same, -math.inf).logsumexp(dim=1) - math.log(len(pairs) - 1)
        return {
            "compact": self.compact * step.cross_entropy(self.nearest(z), label),
            "disperse": self.disperse * spread.mean(),
        }

    def moved(self, z: Tensor, label: Tensor) -> Tensor:
        """The prototypes after all images, one image of each class at a time."""
        prototypes, m = self.prototypes, self.momentum
        turn = (label[:, None] == label).tril(-1).sum(dim=1)
        for k in range(int(turn.max()) + 1):
            rows = turn == k
            c = label[rows]
            moved = F.normalize(m * prototypes[c] + (1 - m) * z[rows], dim=1)
            prototypes = prototypes.index_copy(0, c, moved)
        return prototypes
