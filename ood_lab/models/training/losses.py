"""Losses of a classifier: cross-entropy, and methods that change how a network is trained for OOD.

``loss(logits [B, C], labels [B], outlier_logits [M, C] or None, smoothing)`` returns the weighted
terms by name, scalars whose sum is minimised. Any object that can be called so, and that says in
``outliers_per_image`` how many outliers it reads, may be ``model.classifier.loss``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol

import torch.nn.functional as F
from annotated_types import Ge
from torch import Tensor

from ood_lab.common.arguments import Count, Positive
from ood_lab.common.tensor_file import Tensors


class Loss(Protocol):
    """What a classifier minimises."""

    @property
    def outliers_per_image(self) -> int:
        """M / B in training; 0 = it reads none."""

    def __call__(
        self, logits: Tensor, labels: Tensor, outliers: Tensor | None, smoothing: float
    ) -> Tensors:
        """The weighted terms by name."""


@dataclass(frozen=True)
class CrossEntropy:
    """``CE(z, y)``, with label smoothing."""

    outliers_per_image: ClassVar[int] = 0

    def __call__(
        self, logits: Tensor, labels: Tensor, outliers: Tensor | None, smoothing: float
    ) -> Tensors:
        """See the module."""
        return {"ce": F.cross_entropy(logits, labels, label_smoothing=smoothing)}


@dataclass(frozen=True)
class LogitNorm:
    """``CE(z / (tau (|z| + 1e-7)), y)`` (arXiv 2205.09310), |z| the L2 norm over the classes.

    The length of the logits is no way to lower the loss, so the network is not overconfident. It
    is normalised only in training: detectors read the plain logits.

    Args:
        tau: temperature; the paper chooses it on validation data, 0.04 on CIFAR-10.
    """

    tau: Positive = 0.04
    outliers_per_image: ClassVar[int] = 0

    def __call__(
        self, logits: Tensor, labels: Tensor, outliers: Tensor | None, smoothing: float
    ) -> Tensors:
        """See the module."""
        lengths = logits.norm(dim=1, keepdim=True) + 1e-7
        normed = logits / (self.tau * lengths)
        return {"logit_norm": F.cross_entropy(normed, labels, label_smoothing=smoothing)}


@dataclass(frozen=True)
class OutlierExposure:
    """``CE(z, y) + weight * CE(z', uniform)`` (arXiv 1812.04606), z' the logits of outliers.

    ``CE(z', uniform) = logsumexp(z') - mean(z')``, the mean over the outliers. Without them, as in
    validation, only the first term.

    Args:
        weight: the paper's lambda, 0.5 for image classification.
        outliers_per_image: outliers that a batch has for each of its images. The authors' code for
            CIFAR trains with 256 outliers per 128 images.
    """

    weight: Annotated[float, Ge(0)] = 0.5
    outliers_per_image: Count = 2

    def __call__(
        self, logits: Tensor, labels: Tensor, outliers: Tensor | None, smoothing: float
    ) -> Tensors:
        """See the module."""
        terms = {"ce": F.cross_entropy(logits, labels, label_smoothing=smoothing)}
        if outliers is not None:
            to_uniform = outliers.logsumexp(1) - outliers.mean(1)
            terms["exposure"] = self.weight * to_uniform.mean()
        return terms
