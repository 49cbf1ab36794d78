"""Generalised ODIN: logits as a quotient of a class score and a scale of the image."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from ood_lab.common.arguments import with_settings
from ood_lab.models.backbone import Backbone
from ood_lab.models.objectives.base import Loss, Objective, Step
from ood_lab.models.output import Output


@with_settings
class GODIN(Objective):
    r"""``CE(h(z) / g(z), y)`` (arXiv 2002.11297), :math:`g = \mathrm{sigmoid}(BN(w^\top z + b))`.

    h(z) is by class c: with ``cosine`` the cosine of w_c and z (1e-4 is added to both lengths),
    with ``inner`` ``w_c z + b_c``, with ``euclid`` minus the mean square of ``z - w_c``. Weight
    decay does not reach h. It takes the place of the last layer: the network's logits are h.
    Score: minus the largest h, of an image moved towards it (detector ``godin``).

    Args:
        similarity: what h is.
    """

    own_score = "godin"
    reads = "features"
    similarity: Literal["cosine", "inner", "euclid"] = "cosine"

    def build(self, backbone: Backbone) -> None:
        """Adds h and g."""
        width = backbone.num_features
        self.h = nn.Linear(width, backbone.num_classes, bias=self.similarity == "inner")
        nn.init.kaiming_normal_(self.h.weight, nonlinearity="relu")
        if self.h.bias is not None:
            nn.init.zeros_(self.h.bias)
        self.g = nn.Sequential(nn.Linear(width, 1), nn.BatchNorm1d(1), nn.Sigmoid())
        backbone.drop_head()

    def undecayed(self) -> Iterable[nn.Parameter]:
        """Those of h."""
        return self.h.parameters()

    def output(self, output: Output) -> Output:
        """H as logits ``[B, C]``."""
        z, w = output.features, self.h.weight
        if self.similarity == "inner":
            return Output(self.h(z), z)
        if self.similarity == "euclid":
            return Output(-(z[:, None] - w).square().mean(dim=2), z)
        return Output(F.linear(_unit(z), _unit(w)), z)

    def forward(self, step: Step) -> Loss:
        """The one term."""
        h, z = step.backbone(step.image)
        return Loss(h, {"godin": step.cross_entropy(h / self.g(z))})


def _unit(rows: Tensor) -> Tensor:
    return rows / (rows.norm(dim=1, keepdim=True) + 1e-4)
