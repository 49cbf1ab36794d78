"""ARPL: each class is what is far from its reciprocal point."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ood_lab.common.arguments import with_settings
from ood_lab.common.tensor_arithmetic import squared_norms
from ood_lab.models.backbone import Backbone
from ood_lab.models.objectives.base import Loss, Objective, Step, Weight
from ood_lab.models.output import Output


@with_settings
class ARPL(Objective):
    r"""Cross-entropy of distances from reciprocal points (arXiv 2103.00953).

    .. math::
        \mathrm{CE}(f, y) + \mathrm{weight} \cdot \mathrm{mean}\,\mathrm{relu}(d_y - R + 1),\qquad
        d_c = \lVert z - p_c \rVert^2 / D,\quad f_c = d_c - z^\top p_c

    with a learned point p_c of each class and a learned radius R. f takes the place of the
    network's logits. Score: ``-max f``. It is the form without confusing samples.

    Args:
        weight: of the second term, the paper's λ.
    """

    own_score = "arpl"
    reads = "features"
    weight: Weight = 0.1

    def build(self, backbone: Backbone) -> None:
        """Adds points ``[C, D]`` and R."""
        width = backbone.num_features
        self.points = nn.Parameter(0.1 * torch.randn(backbone.num_classes, width))
        self.radius = nn.Parameter(torch.zeros(1))
        backbone.drop_head()

    def output(self, output: Output) -> Output:
        """F as logits."""
        z, p = output.features, self.points
        inner = z @ p.T
        square = squared_norms(z)[:, None] - 2 * inner + squared_norms(p)
        return Output(square / z.shape[1] - inner, z)

    def forward(self, step: Step) -> Loss:
        """Both terms."""
        f, z = step.backbone(step.image)
        distance = (z - self.points[step.label]).square().mean(dim=1)
        margin = (distance - self.radius + 1).relu().mean()
        return Loss(f, {"ce": step.cross_entropy(f), "margin": self.weight * margin})

    def score(self, backbone: Backbone, image: Tensor, output: Output) -> Tensor:
        """``-max f``."""
        return -output.logits.amax(dim=1)
