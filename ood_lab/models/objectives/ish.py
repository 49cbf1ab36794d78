"""ISH: images with pronounced features weigh more in the gradient of the head."""

from __future__ import annotations

from typing import Annotated

import torch.nn.functional as F
from annotated_types import Interval

from ood_lab.common.arguments import with_settings
from ood_lab.models.objectives.base import Loss, Objective, Step


@with_settings
class ISH(Objective):
    r"""Cross-entropy, with a reshaped gradient of the head (arXiv 2310.00227).

    .. math::
        \partial L / \partial W = \sum_i g_i\, (s_i z_i)^\top, \qquad
        s = \exp\bigl(\textstyle\sum_d z_d / \sum_{d \in \mathrm{top}\ k} |z_d|\bigr)

    with g_i the gradient at the logits of image i, and k = D (100 - percentile) / 100 entries of
    largest \|z\|. Loss and all other gradients are those of cross-entropy. It fine-tunes a trained
    network in few epochs, for the detector ``scale``. (OpenOOD's configuration also sets the other
    entries of z to zero: ``prune=true``.)

    Args:
        percentile: of the entries that are not in the top.
        prune: the gradient reads only the top.
    """

    reads = "a linear head"
    percentile: Annotated[float, Interval(ge=0, lt=100)] = 85
    prune: bool = False

    def forward(self, step: Step) -> Loss:
        """The one term."""
        if not step.training:
            return super().forward(step)
        z, head = step.backbone(step.image).features, step.head
        k = max(1, int(z.shape[1] * (1 - self.percentile / 100)))
        size = z.detach()
        top, places = size.abs().topk(k, dim=1)
        ratio = size.sum(dim=1, keepdim=True) / top.sum(dim=1, keepdim=True)
        if self.prune:
            size = size.new_zeros(size.shape).scatter(1, places, top)
        shaped = F.linear(size * ratio.exp(), head.weight)
        # The difference is 0; its gradient reaches the weight alone.
        logits = F.linear(z, head.weight.detach(), head.bias) + (shaped - shaped.detach())
        return Loss(logits, {"ce": step.cross_entropy(logits)})
