"""What losses of projected features share: CIDER, NPOS and PALM."""

from __future__ import annotations

from dataclasses import field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ood_lab.common.arguments import Count, Positive, with_settings
from ood_lab.common.tensor_arithmetic import full_precision
from ood_lab.common.tensor_file import Tensors
from ood_lab.models.backbone import Backbone
from ood_lab.models.objectives.base import Loss, Objective, Step


@with_settings
class Projected(Objective):
    """A loss of unit-length projections of two random transforms of each image.

    The network's own head is not trained, and a linear one is fitted on ID train afterwards.
    Detectors read the features, not their projections. ``val/acc`` is that of the nearest
    prototype. Loss and projection are computed in full precision. In several processes the
    prototypes are those of the first one.

    Args:
        width: of the projections, d.
        temperature: τ.
    """

    probed = True
    reads = "a linear head"
    views = 2
    width: Count = 128
    temperature: Positive = 0.1
    prototypes: Tensor = field(init=False)

    def build(self, backbone: Backbone) -> None:
        """Adds the projection: linear, ReLU, linear."""
        d = backbone.num_features
        self.project = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, self.width))

    def forward(self, step: Step) -> Loss:
        """One pass of all views, then :meth:`of_projections`."""
        label = step.label
        if step.views is None:
            features = step.backbone(step.image).features
        else:
            features = torch.cat([o.features for o in step.together(step.views.flatten(0, 1))])
            label = torch.cat([label, label.repeat_interleave(step.views.shape[1])])
        with full_precision(features):
            features = features.to(self.prototypes.dtype)
            z = F.normalize(self.project(features), dim=1)
            terms = self.of_projections(step, features, z, label)
            return Loss(self.nearest(z[: len(step.image)]), terms)

    def of_projections(self, step: Step, features: Tensor, z: Tensor, label: Tensor) -> Tensors:
        """The terms, of features ``[N, D]``, projections ``[N, d]`` and labels ``[N]``."""
        raise NotImplementedError

    def nearest(self, z: Tensor) -> Tensor:
        """By class, similarity to its nearest prototype, ``[N, C]``."""
        return z @ self.prototypes.T / self.temperature
