"""MOS: a softmax for each group of classes, with a class for all others."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ood_lab.common.arguments import Count, with_settings
from ood_lab.common.errors import UserError
from ood_lab.models.backbone import Backbone
from ood_lab.models.objectives.base import Loss, Objective, Step
from ood_lab.models.output import Output


@with_settings
class MOS(Objective):
    r"""Sum of the cross-entropies of all groups of classes (arXiv 2105.01879).

    Each group k has a softmax over its classes and "others", to which an image of another group
    belongs: :math:`-\log p_y - \sum_{k \ne k(y)} \log o_k`, o_k the probability of "others". The
    network's logits are the log p_c within the groups. Score: ``min_k o_k``.

    Args:
        groups: their number, of consecutive classes; or lists of the numbers of their classes, as a
            taxonomy or a clustering has them; None = √C.
    """

    own_score = "mos"
    reads = "features"
    groups: Count | Sequence[Sequence[int]] | None = None

    def build(self, backbone: Backbone) -> None:
        """Adds a layer of C + K logits in place of the head.

        Raises:
            UserError: a class is in no group, or in several; or a group is empty.
        """
        classes, lists = backbone.num_classes, self.groups
        if lists is None or isinstance(lists, int):
            count = lists or round(classes**0.5)
            lists = [part.tolist() for part in torch.arange(classes).tensor_split(count)]
        members = [c for group in lists for c in group]
        if sorted(members) != [*range(classes)] or not all(lists):
            raise UserError(
                f"loss.groups: each of 0 to {classes - 1} is in one group, and none is empty"
            )
        numbers = [k for k, group in enumerate(lists) for _ in group]
        self.group = nn.Buffer(torch.empty(classes, dtype=torch.int64))
        self.group[members] = torch.tensor(numbers)
        self.layer = nn.Linear(backbone.num_features, classes + len(lists))
        backbone.drop_head()

    def probabilities(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Logarithms of p ``[B, C]`` and of o ``[B, K]``."""
        logits, others = self.layer(features).tensor_split([len(self.group)], dim=1)
        inside = self.group == torch.arange(others.shape[1], device=others.device)[:, None]
        of_groups = logits[:, None].where(inside, -torch.inf)
        total = torch.cat([of_groups, others[:, :, None]], dim=2).logsumexp(dim=2)
        return logits - total[:, self.group], others - total

    def output(self, output: Output) -> Output:
        """Log p as logits."""
        return Output(self.probabilities(output.features)[0], output.features)

    def forward(self, step: Step) -> Loss:
        """The one term."""
        features = step.backbone(step.image).features
        p, others = self.probabilities(features)
        rows = torch.arange(len(p), device=p.device)
        strange = others.sum(dim=1) - others[rows, self.group[step.label]]
        return Loss(p, {"groups": -(p[rows, step.label] + strange).mean()})

    def score(self, backbone: Backbone, image: Tensor, output: Output) -> Tensor:
        """Least probability of "others"."""
        return self.probabilities(output.features)[1].amin(dim=1).exp()
