"""VOS: virtual outliers, drawn where the features of a class are least likely."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ood_lab.common.arguments import Count, Positive, Share, with_settings
from ood_lab.common.tensor_arithmetic import full_precision, squared_norms
from ood_lab.models.backbone import Backbone
from ood_lab.models.objectives.base import Loss, Objective, Step, Weight
from ood_lab.models.objectives.feature_queues import FeatureQueues


@with_settings
class VOS(Objective):
    r"""Cross-entropy, and logistic regression of energies (arXiv 2202.01197).

    .. math::
        \mathrm{CE}(f, y) + \beta\,\mathrm{mean}\bigl[\mathrm{BCE}(\phi(E(f)), 1),
        \mathrm{BCE}(\phi(E(\tilde f)), 0)\bigr], \qquad
        E(f) = -\log \textstyle\sum_c \mathrm{relu}(w_c) e^{f_c}

    the mean over ID images and virtual outliers alike, with a learned w and a learned line φ, as in
    the authors' code. f̃ are the logits of virtual outliers: of ``draws`` features from
    N(μ_c, Σ + ridge I) of each class, the one of least likelihood. μ_c and the shared Σ are those
    of the last ``queue`` features of each class; the second term begins when ``start`` of the
    epochs are over and all queues are full. (OpenOOD makes new random weights w at every call.)

    In several processes the queues are those of the first one.

    Args:
        weight: the paper's β.
        start: share of the epochs before the second term.
        queue: features that are kept of each class.
        draws: candidates of each virtual outlier.
        ridge: is added to the diagonal of Σ.
    """

    reads = "a linear head"
    weight: Weight = 0.1
    start: Share = 0.4
    queue: Count = 1000
    draws: Count = 10_000
    ridge: Positive = 1e-4

    def build(self, backbone: Backbone) -> None:
        """Adds w ``[C]``, φ, and queues ``[C, queue, D]``."""
        self.queues = FeatureQueues(backbone, self.queue)
        self.energy_weight = nn.Parameter(torch.rand(backbone.num_classes))
        self.line = nn.Linear(1, 1)

    def forward(self, step: Step) -> Loss:
        """One pass; the virtual outliers pass only the head."""
        output = step.backbone(step.image)
        terms = {"ce": step.cross_entropy(output.logits)}
        if step.training:
            if self.queues.full and step.progress >= self.start:
                virtual = step.head(self.virtual_outliers().to(output.features.dtype))
                terms["virtual"] = self.weight * self.separation(output.logits, virtual)
            self.queues.remember(output.features.detach().float(), step.label)
        return Loss(output.logits, terms)

    def energy(self, logits: Tensor) -> Tensor:
        """E of logits ``[N, C]``, ``[N]``."""
        top = logits.amax(dim=1, keepdim=True)
        weights = F.relu(self.energy_weight)
        return -(top.squeeze(1) + ((logits - top).exp() * weights).sum(dim=1).log())

    def separation(self, logits: Tensor, virtual: Tensor) -> Tensor:
        """Mean binary cross-entropy, ID images as 1 and virtual outliers as 0."""
        energies = torch.cat([self.energy(logits), self.energy(virtual)])
        inside = torch.cat([torch.ones(len(logits)), torch.zeros(len(virtual))]).to(energies)
        return F.binary_cross_entropy_with_logits(self.line(energies[:, None])[:, 0], inside)

    def virtual_outliers(self) -> Tensor:
        """One for each class, ``[C, D]``: the likelihood falls with the length of the draw."""
        means = self.queues.features.mean(dim=1)
        centred = (self.queues.features - means[:, None]).flatten(0, 1)
        with full_precision(means):  # in bfloat16 it has no factor
            covariance = centred.T @ centred / len(centred)
        covariance.diagonal().add_(self.ridge)
        factor = torch.linalg.cholesky(covariance)
        outliers = []
        for mean in means:
            noise = torch.randn(self.draws, mean.numel(), dtype=mean.dtype, device=mean.device)
            farthest = squared_norms(noise).argmax()
            outliers.append(mean + factor @ noise[farthest])
        return torch.stack(outliers)
