"""LoCoOp (arXiv:2306.01293): regions that do not show the class are pushed away from all texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Unpack

import torch
from torch import Tensor
from torch.optim import Optimizer

from ood_lab.common.errors import UserError
from ood_lab.common.tensor_file import Batch, Tensors
from ood_lab.models.output import Output
from ood_lab.models.training.classifier import Schedule
from ood_lab.prompts.backbone import PromptBackbone
from ood_lab.prompts.coop import PromptLearner


class LocalOutput(NamedTuple):
    """``logits [B, C]`` of the images and ``local_logits [B, P, C]`` of their regions."""

    logits: Tensor
    local_logits: Tensor


def outlier_regions(local_logits: Tensor, labels: Tensor, top_k: int) -> Tensor:
    """Regions in whose ``top_k`` likeliest classes that of the image is not, ``[B, P] bool``.

    Args:
        local_logits: ``[B, P, C]``.
        labels: ``[B]``.
        top_k: K; with K = C no region is selected.
    """
    label_logits = local_logits.gather(
        2, labels[:, None, None].expand(-1, local_logits.shape[1], 1)
    )
    return (local_logits > label_logits).sum(dim=2) >= top_k


def outlier_entropy(local_logits: Tensor, labels: Tensor, top_k: int) -> Tensor:
    """Mean over all :func:`outlier_regions` of the batch of ``-Σ_c p_c log(p_c + 1e-5)``.

    ``p`` is the softmax over all classes. 0 where no region is selected. The mean is one over
    regions, not over images.
    """
    selected = outlier_regions(local_logits.detach(), labels, top_k)
    p = local_logits.softmax(dim=2)
    entropy = -(p * (p + 1e-5).log()).sum(dim=2)
    return (entropy * selected).sum() / selected.sum().clamp(min=1)


class LoCoOp(PromptLearner):
    """``loss = CE(s f·t_c, y) - weight · H`` with the entropy H of :func:`outlier_entropy`.

    The validation loss is only the cross-entropy.

    In several processes H is the mean over the regions that each process has selected, then over
    the processes; their numbers of regions differ, so the numbers are close to those of one
    process but not the same.

    Args:
        backbone: with an image tower that has local features.
        optimizer: see :class:`Classifier`.
        schedule: of the learning rate.
        weight: λ of the entropy.
        top_k: K, from 1 to C - 1; None = a fifth of the classes (200 of ImageNet's 1,000).

    Raises:
        UserError: K is out of range, or the tower has no local features.
    """

    def __init__(
        self,
        backbone: PromptBackbone,
        optimizer: Callable[..., Optimizer],
        weight: float = 0.25,
        top_k: int | None = None,
        **schedule: Unpack[Schedule],
    ) -> None:
        super().__init__(backbone, optimizer, **schedule)
        classes = len(backbone.classnames)
        self.weight = weight
        self.top_k = max(1, round(0.2 * classes)) if top_k is None else top_k
        if not 1 <= self.top_k < classes:
            raise UserError(
                f"model.classifier.top_k={self.top_k}: must lie between 1 and {classes - 1}, one "
                f"below the number of classes ({classes})"
            )
        backbone.clip.check_local_features()  # here, not in training

    def train_outputs(self, batch: Batch) -> LocalOutput:
        """Logits of the images and of their regions, from one pass of the text tower."""
        clip = self.backbone.clip
        with torch.no_grad():
            pooled, local = clip.image_features_and_local(batch["image"])
        texts = self.backbone.prompts.features(clip)
        return LocalOutput(self.scaled(pooled, texts), self.scaled(local, texts))

    def losses(self, outputs: Output | LocalOutput, batch: Batch) -> Tensors:
        """Cross-entropy of the images, in training also the entropy of the regions."""
        terms = super().losses(outputs, batch)
        if isinstance(outputs, LocalOutput):
            entropy = outlier_entropy(outputs.local_logits, batch["label"], self.top_k)
            terms["outlier"] = -self.weight * entropy
        return terms
