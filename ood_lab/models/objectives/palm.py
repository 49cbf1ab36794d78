"""PALM: several prototypes of each class, to which images are assigned softly."""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from annotated_types import Ge
from torch import Tensor

from ood_lab.common.arguments import Count, Positive, Share, with_settings
from ood_lab.common.tensor_file import Tensors
from ood_lab.models.backbone import Backbone
from ood_lab.models.objectives.base import Step, Weight
from ood_lab.models.objectives.projected import Projected


@with_settings
class PALM(Projected):
    r"""A mixture of prototypes by class, of projections z (arXiv 2402.02653).

    .. math::
        \mathrm{CE}(z^\top p / \tau, w) + \mathrm{weight} \cdot
        \mathrm{CE}_{k \ne j}(p_j^\top p_k / 0.5,\; u_j)

    w are assignments of an image to the prototypes: those of its class, of which the largest
    ``assigned`` count, with a sum of 1. Sinkhorn's iterations balance ``exp(z p / epsilon)`` over
    the batch first. u_j is uniform over the other prototypes of the class of p_j. The assigned
    images move a prototype, ``p ← unit(momentum p + (1 - momentum) mean z)``, through which
    gradients of the second term reach z. Score: detector ``mds_pp``, which is ``mds`` on
    normalised penultimate features.

    Args:
        weight: of the second term.
        prototypes_per_class: K.
        assigned: prototypes of an image, at most K.
        momentum: of the prototypes.
        epsilon: temperature of the assignments.
        iterations: Sinkhorn's.
        width: of the projections.
        temperature: τ.
    """

    weight: Weight = 1.0
    prototypes_per_class: Annotated[int, Ge(2)] = 6
    assigned: Count = 5
    momentum: Share = 0.999
    epsilon: Positive = 0.05
    iterations: Count = 3

    def build(self, backbone: Backbone) -> None:
        """Adds the projection and prototypes ``[C * K, d]``, random at first."""
        super().build(backbone)
        prototypes = torch.rand(backbone.num_classes * self.prototypes_per_class, self.width)
        self.register_buffer("prototypes", F.normalize(prototypes, dim=1))

    def of_projections(self, step: Step, features: Tensor, z: Tensor, label: Tensor) -> Tensors:
        """Both terms; training moves the prototypes first."""
        p, m = self.prototypes, self.momentum
        of_class = torch.arange(len(p), device=p.device) // self.prototypes_per_class
        if step.training:
            shares = F.normalize(self.assignments(z, label == of_class[:, None]), p=1, dim=0)
            p = F.normalize(m * p + (1 - m) * shares.T @ z, dim=1)
            self.prototypes.copy_(p.detach())
        target = self.assignments(z, label == of_class[:, None])
        mates = (of_class == of_class[:, None]).to(p).fill_diagonal_(0)
        pairs = (2 * p @ p.T).masked_fill(torch.eye(len(p), device=p.device).bool(), -1e9)
        contrast = F.cross_entropy(pairs, F.normalize(mates, p=1, dim=1))
        similarity = z @ self.prototypes.T / self.temperature
        return {
            "assigned": F.cross_entropy(similarity, target),
            "contrast": self.weight * contrast,
        }

    def assignments(self, z: Tensor, allowed: Tensor) -> Tensor:
        """Shares ``[N, C * K]`` of which rows sum to 1, of ``allowed [C * K, N]``."""
        similarity = z.detach() @ self.prototypes.T / self.epsilon
        q = (similarity - similarity.amax()).exp()
        for _ in range(self.iterations):
            q = F.normalize(F.normalize(q, p=1, dim=0), p=1, dim=1)
        q = q * allowed.T
        top = q.topk(min(self.assigned, self.prototypes_per_class), dim=1)
        return F.normalize(torch.zeros_like(q).scatter(1, top.indices, top.values), p=1, dim=1)

    def nearest(self, z: Tensor) -> Tensor:
        """By class, similarity to its nearest prototype, ``[N, C]``."""
        return super().nearest(z).unflatten(1, (-1, self.prototypes_per_class)).amax(dim=2)
