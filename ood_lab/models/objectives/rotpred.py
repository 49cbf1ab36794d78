"""RotPred: a layer that says by how much an image is turned."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ood_lab.common.arguments import with_settings
from ood_lab.common.errors import UserError
from ood_lab.models.backbone import Backbone
from ood_lab.models.objectives.base import Loss, Objective, Step, Weight
from ood_lab.models.output import Output


@with_settings
class RotPred(Objective):
    r"""``CE(f(x), y) + weight * CE(g(x_k), k)`` (arXiv 1906.12340).

    x_k is x turned by k quarter turns, k = 0 to 3, and g a second linear layer on the features. All
    four pass as one batch. Score, with u uniform over the classes:

    .. math::
        -\mathrm{KL}(u \,\|\, \mathrm{softmax} f(x)) + \tfrac14 \sum_k \mathrm{CE}(g(x_k), k)

    Validation is plain cross-entropy.

    Args:
        weight: of the second term.
    """

    own_score = "rotpred"
    reads = "features"
    weight: Weight = 1.0

    def build(self, backbone: Backbone) -> None:
        """Adds the second layer; images are square."""
        _, height, width = backbone.data_config["input_size"]
        if height != width:
            raise UserError(f"RotPred turns images, and {backbone.name} reads {width} x {height}")
        self.turn = nn.Linear(backbone.num_features, 4)

    def forward(self, step: Step) -> Loss:
        """Both terms, of one pass."""
        if not step.training:
            return super().forward(step)
        image = step.image
        plain, turned = step.together(torch.cat([image.rot90(k, (2, 3)) for k in (1, 2, 3)]))
        turns = self.turn(torch.cat([plain.features, turned.features]))
        k = torch.arange(4, device=image.device).repeat_interleave(len(image))
        terms = {"ce": step.cross_entropy(plain.logits)}
        terms["turn"] = self.weight * F.cross_entropy(turns, k)
        return Loss(plain.logits, terms)

    def score(self, backbone: Backbone, image: Tensor, output: Output) -> Tensor:
        """Three more passes."""
        logits = output.logits
        surprise = -logits.log_softmax(dim=1).mean(dim=1) - torch.tensor(logits.shape[1]).log()
        passes = [output, *(backbone(image.rot90(k, (2, 3))) for k in (1, 2, 3))]
        turns = [-self.turn(passes[k].features).log_softmax(dim=1)[:, k] for k in range(4)]
        return torch.stack(turns).mean(dim=0) - surprise
