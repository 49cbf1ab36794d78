"""MixOE: images between ID and outliers, with labels between one class and all."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ood_lab.common.arguments import Positive, with_settings
from ood_lab.models.objectives.base import Loss, Objective, Step, Weight


@with_settings
class MixOE(Objective):
    """``CE(f(x), y) + weight * CE(f(x'), λ onehot(y) + (1 - λ) u)`` (arXiv 2110.14061).

    x' is an ID image with a rectangle of an outlier, of the share 1 - λ of its area, or with
    ``cut=false`` ``λ x + (1 - λ) x̃``; u is uniform over the classes. λ ~ Beta(alpha, beta), one a
    batch; with a rectangle it is the share of the ID image that is left. Validation is plain
    cross-entropy.

    Args:
        weight: of the second term.
        alpha, beta: of the Beta distribution; OpenOOD's. The paper's are 1 and 1.
        cut: a rectangle of the outlier; False = the weighted mean of both images.
    """

    outliers_per_image = 1
    weight: Weight = 1.0
    alpha: Positive = 0.1
    beta: Positive = 1.0
    cut: bool = True

    def forward(self, step: Step) -> Loss:
        """Both terms, of one pass."""
        if step.outliers is None:
            return super().forward(step)
        image, share = self.mixed(step.image, step.outliers)
        plain, mixed = step.together(image)
        classes = plain.logits.shape[1]
        target = share * F.one_hot(step.label, classes) + (1 - share) / classes
        terms = {
            "ce": step.cross_entropy(plain.logits),
            "mixed": self.weight * F.cross_entropy(mixed.logits, target.to(mixed.logits.dtype)),
        }
        return Loss(plain.logits, terms)

    def mixed(self, image: Tensor, outliers: Tensor) -> tuple[Tensor, float]:
        """Mixed images ``[B, 3, H, W]``, and the share of the ID image in them."""
        share = float(torch.distributions.Beta(self.alpha, self.beta).sample())
        if not self.cut:
            return share * image + (1 - share) * outliers, share
        height, width = image.shape[-2:]
        side = (1 - share) ** 0.5
        row, column = int(torch.randint(height, ())), int(torch.randint(width, ()))
        half = int(side * height / 2), int(side * width / 2)
        rows = slice(max(row - half[0], 0), row + half[0])
        columns = slice(max(column - half[1], 0), column + half[1])
        image = image.clone()
        image[..., rows, columns] = outliers[..., rows, columns]
        area = image[0, 0, rows, columns].numel()
        return image, 1 - area / (height * width)
