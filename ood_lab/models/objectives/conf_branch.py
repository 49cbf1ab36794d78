"""Confidence branch: a network that asks for hints, and pays for them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ood_lab.common.arguments import Positive, with_settings
from ood_lab.models.backbone import Backbone
from ood_lab.models.objectives.base import Loss, Objective, Step
from ood_lab.models.output import Output

#: Probabilities are at least this, and at most 1 minus it, as in the authors' code.
_LEAST = 1e-12


@with_settings
class ConfBranch(Objective):
    r"""Cross-entropy of a prediction mixed with the label (arXiv 1802.04865).

    .. math::
        \mathrm{NLL}(\tilde c\,p + (1 - \tilde c)\,\mathrm{onehot}(y)) - \lambda\,\mathrm{mean}
        \log c, \qquad p = \mathrm{softmax}(f),\quad c = \mathrm{sigmoid}(v^\top z + b)

    c̃ is c for a random half of the images, and 1 for the others. λ begins at ``weight``; after each
    batch it is divided by 1.01 where the mean of -log c is below ``budget``, else by 0.99. v and b
    are a second linear layer on the features. Score: ``-c``. Validation is plain cross-entropy.

    Args:
        weight: λ at the start.
        budget: mean of -log c to which λ leads.
    """

    own_score = "conf_branch"
    reads = "features"
    weight: Positive = 0.1
    budget: Positive = 0.3

    def build(self, backbone: Backbone) -> None:
        """Adds the second layer, and λ."""
        self.confidence = nn.Linear(backbone.num_features, 1)
        self.current: Tensor = nn.Buffer(torch.tensor(self.weight))

    def forward(self, step: Step) -> Loss:
        """Both terms, and the next λ."""
        if not step.training:
            return super().forward(step)
        logits, z = step.backbone(step.image)
        p = logits.softmax(dim=1).clamp(_LEAST, 1 - _LEAST)
        c = self.confidence(z).sigmoid().clamp(_LEAST, 1 - _LEAST)
        hinted = torch.where(torch.rand_like(c) < 0.5, c, 1)
        mixed = hinted * p + (1 - hinted) * F.one_hot(step.label, p.shape[1])
        cost = -c.log().mean()
        terms = {"nll": F.nll_loss(mixed.log(), step.label), "confidence": self.current * cost}
        # The term of this batch keeps its λ.
        self.current = self.current / torch.where(cost.detach() < self.budget, 1.01, 0.99)
        return Loss(logits, terms)

    def score(self, backbone: Backbone, image: Tensor, output: Output) -> Tensor:
        """``-c``."""
        return -self.confidence(output.features).sigmoid()[:, 0]
