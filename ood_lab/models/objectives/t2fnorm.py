"""T2FNorm: cross-entropy of features of one length."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from ood_lab.common.arguments import Positive, with_settings
from ood_lab.common.tensor_file import Tensors
from ood_lab.models.backbone import Backbone
from ood_lab.models.objectives.base import Loss, Objective, Step


@with_settings
class T2FNorm(Objective):
    """``CE(W z / (tau |z|) + b, y)`` (arXiv 2305.17797), |z| the L2 norm of the features.

    Evaluation reads ``W z / tau + b``, without the norm: a checkpoint has ``W / tau`` as the weight
    of its head. That is the paper's for networks that are trained from scratch; after fine-tuning
    it is the plain ``W z + b``.

    Args:
        tau: temperature.
        scaled: evaluation divides by ``tau``.
    """

    reads = "a linear head"
    tau: Positive = 0.1
    scaled: bool = True

    def forward(self, step: Step) -> Loss:
        """The one term; in validation of the logits that evaluation reads."""
        z = step.backbone(step.image).features
        factor = self.tau * z.norm(dim=1, keepdim=True).clamp(min=1e-12)
        if not step.training:
            factor = z.new_tensor(self.tau if self.scaled else 1.0)
        logits: Tensor = F.linear(z / factor, step.head.weight, step.head.bias)
        return Loss(logits, {"t2fnorm": step.cross_entropy(logits)})

    def evaluated(self, backbone: Backbone) -> Tensors:
        """The weight of the head, divided by ``tau``."""
        head = backbone.head
        assert head is not None
        name = next(key for key, module in backbone.named_modules() if module is head)
        return {f"{name}.weight": head.weight.detach() / self.tau} if self.scaled else {}
