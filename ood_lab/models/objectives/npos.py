"""NPOS: CIDER, and outliers made of the features at the border of each class."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ood_lab.common.arguments import Count, Positive, Share, with_settings
from ood_lab.common.tensor_file import Tensors
from ood_lab.models.backbone import Backbone
from ood_lab.models.objectives.base import Step, Weight
from ood_lab.models.objectives.cider import CIDER
from ood_lab.models.objectives.feature_queues import FeatureQueues


@with_settings
class NPOS(CIDER):
    r"""CIDER's two terms, and logistic regression of virtual outliers (arXiv 2303.02966).

    .. math::
        L_\mathrm{CIDER} + \mathrm{weight} \cdot
        \mathrm{mean}\,[\mathrm{BCE}(g(h), 1), \mathrm{BCE}(g(\tilde h), 0)]

    over penultimate features h and virtual outliers alike, with a small network g. Of the last
    ``queue`` features of each class, ``boundary`` are farthest from their k-th neighbour. Gaussian
    noise is added ``draws`` times to ``points`` of them, drawn at random, and of each the ``keep``
    farthest are virtual outliers. Distances are those of unit-length features, within the class.
    The third term begins when ``start`` of the epochs are over and all queues are full. (OpenOOD
    empties them in each epoch.) Score: detector ``knn``, which reads normalised penultimate
    features.

    Args:
        weight: of the third term.
        start: share of the epochs before the third term.
        queue: features that are kept of each class.
        k: neighbour, at most ``queue``.
        boundary: features at the border of a class.
        points: of them that get noise, in each step.
        noise: standard deviation.
        draws: candidates of each point.
        keep: virtual outliers of each point.
        compact, disperse, momentum, width, temperature: see :class:`CIDER`.
    """

    weight: Weight = 0.1
    start: Share = 0.4
    queue: Count = 1000
    k: Count = 300
    boundary: Count = 200
    points: Count = 2
    noise: Positive = 0.1
    draws: Count = 600
    keep: Count = 200
    compact: Weight = 1.0
    disperse: Weight = 0.5

    def build(self, backbone: Backbone) -> None:
        """Adds to CIDER's layers g and the queues."""
        super().build(backbone)
        d = backbone.num_features
        self.inside = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 1))
        self.queues = FeatureQueues(backbone, self.queue)

    def of_projections(self, step: Step, features: Tensor, z: Tensor, label: Tensor) -> Tensors:
        """Two terms, and the third after its start."""
        terms = super().of_projections(step, features, z, label)
        if step.training:
            if self.queues.full and step.progress >= self.start:
                logits = self.inside(torch.cat([features, self.virtual_outliers()])).squeeze(1)
                target = (torch.arange(len(logits), device=z.device) < len(features)).to(logits)
                terms["virtual"] = self.weight * F.binary_cross_entropy_with_logits(logits, target)
            self.queues.remember(features.detach(), label)
        return terms

    def virtual_outliers(self) -> Tensor:
        """``[C * points * keep, D]``."""
        outliers, keep = [], min(self.keep, self.draws)
        for rows in self.queues.features:
            border = self.radius(rows, rows).topk(min(self.boundary, self.queue)).indices
            drawn = torch.randperm(len(border), device=rows.device)[: self.points]
            for point in rows[border[drawn]]:
                noise = torch.randn(self.draws, len(point), dtype=rows.dtype, device=rows.device)
                candidates = point + self.noise * noise
                outliers.append(candidates[self.radius(candidates, rows).topk(keep).indices])
        return torch.cat(outliers)

    def radius(self, candidates: Tensor, rows: Tensor) -> Tensor:
        """Distance of each candidate to its k-th neighbour among the rows."""
        distances = torch.cdist(F.normalize(candidates, dim=1), F.normalize(rows, dim=1))
        return distances.kthvalue(min(self.k, self.queue), dim=1).values
