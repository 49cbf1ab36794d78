"""Mixup, CutMix and RegMixup: images and labels of a batch, mixed in pairs."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torchvision.transforms import v2

from ood_lab.common.arguments import Positive, Share, with_settings
from ood_lab.common.tensor_arithmetic import random_numbers
from ood_lab.models.backbone import Backbone
from ood_lab.models.objectives.base import Loss, Objective, Step


@with_settings
class MixedImages(Objective):
    """``CE(f(x'), y')`` of mixed images x' and labels y' = λ onehot(y_a) + (1 - λ) onehot(y_b).

    Mixup (arXiv 1710.09412): ``x' = λ x_a + (1 - λ) x_b``. CutMix (arXiv 1905.04899): x_a with a
    rectangle of x_b, of the share 1 - λ of its area. λ ~ Beta(alpha, alpha), one a batch, as
    torchvision's transforms draw it. Validation is plain cross-entropy.

    Args:
        alpha: of the Beta distribution.
        cut: CutMix; False = Mixup.
        probability: share of the batches that are mixed.
        clean: adds the clean images: the mean of both halves, ``(CE(f(x), y) + CE(f(x'), y')) / 2``
            (RegMixup, arXiv 2206.14502, by its released code).
    """

    alpha: Positive = 0.2
    cut: bool = False
    probability: Share = 1.0
    clean: bool = False

    def build(self, backbone: Backbone) -> None:
        """Adds a counter of batches, whose value is the seed of the draw."""
        self.batches: Tensor = nn.Buffer(torch.randint(2**31, ()))

    def forward(self, step: Step) -> Loss:
        """The one term, or with ``clean`` both."""
        if not (step.training and self.mixes()):
            return super().forward(step)
        image, target = self.mixed(step)
        if not self.clean:
            return Loss(None, {"ce": step.cross_entropy(step.backbone(image).logits, target)})
        plain, mixed = step.together(image)
        terms = {
            "ce": step.cross_entropy(plain.logits) / 2,
            "mixed": step.cross_entropy(mixed.logits, target) / 2,
        }
        return Loss(plain.logits, terms)

    def mixes(self) -> bool:
        """Whether the next batch is mixed; in all processes or in none, which log the same."""
        self.batches += 1
        draw = torch.rand((), generator=random_numbers(int(self.batches)))
        return bool(draw < self.probability)

    def mixed(self, step: Step) -> tuple[Tensor, Tensor]:
        """Images ``[B, 3, H, W]`` and labels ``[B, C]``."""
        mix = v2.CutMix if self.cut else v2.MixUp
        classes = step.backbone.num_classes
        image, target = mix(alpha=self.alpha, num_classes=classes)(step.image, step.label)
        return image, target
