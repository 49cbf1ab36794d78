"""Outlier exposure: uniform probabilities on images that are neither ID nor evaluated."""

from __future__ import annotations

from torch import Tensor

from ood_lab.common.arguments import Count, with_settings
from ood_lab.common.tensor_file import Tensors
from ood_lab.models.objectives.base import LogitsObjective, Step, Weight


@with_settings
class OutlierExposure(LogitsObjective):
    """``CE(f, y) + weight * CE(f', uniform)`` (arXiv 1812.04606), f' the logits of outliers.

    ``CE(f', uniform) = logsumexp(f') - mean(f')``, the mean over the outliers. pytorch-ood divides
    the sum of both terms by the images and outliers of the batch, which is another weight.

    Args:
        weight: the paper's lambda, 0.5 for image classification.
        outliers_per_image: outliers that a batch has for each of its images. The authors' code for
            CIFAR trains with 256 outliers per 128 images.
    """

    weight: Weight = 0.5
    outliers_per_image: Count = 2

    def of_logits(self, step: Step, logits: Tensor, outliers: Tensor | None) -> Tensors:
        """Without outliers, as in validation, only the first term."""
        terms = {"ce": step.cross_entropy(logits)}
        if outliers is not None:
            terms["exposure"] = self.weight * (outliers.logsumexp(1) - outliers.mean(1)).mean()
        return terms
