"""Contrastive training of a CLIP on images with captions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import Optimizer
from torchmetrics.classification import MulticlassAccuracy

from ood_lab.clip import ClipBackbone, clip_backbone, untrained_clip
from ood_lab.common.tensor_file import Tensors
from ood_lab.models import Classifier

_MAX_LOG_SCALE = math.log(100.0)
#: Captions of one batch are told apart by number; no batch is larger.
_MOST_TEXTS = 2**16


class ClipOutput(NamedTuple):
    """``logits [B, U] = s f_i t_u`` of the images with the distinct captions of their batch."""

    logits: Tensor


class ClipTraining(Classifier):
    """Trains both towers with the contrastive loss of CLIP (arXiv:2103.00020).

    Captions that are equal are one text ``u`` with all their images as positives ``P_u``::

        loss = 1/2 mean_i CE(s f_i T', u_i) + 1/2 mean_u mean_(i in P_u) CE(s t_u F', i)

    Batches hold ``image [B, 3, H, W]`` and ``caption`` (B strings). The negatives are those of
    the same batch on the same device. ``acc`` is the share of images whose own caption is the
    nearest of its batch. The logit scale stays at or below 100. Half of the texts get a full
    stop, so that it means nothing.

    Args:
        backbone: with a CLIP that is not frozen; its head follows the text tower.
        optimizer: makes the optimiser from the parameter groups (a partial); no decay on biases,
            norms and the logit scale.
        scheduler: see :class:`Classifier`.
        scheduler_interval: see :class:`Classifier`.
    """

    backbone: ClipBackbone
    needs_labels = False  # captions are what it learns from

    def __init__(
        self,
        backbone: ClipBackbone,
        optimizer: Callable[..., Optimizer],
        scheduler: Callable[..., Any] | None = None,
        scheduler_interval: Literal["step", "epoch"] = "step",
    ) -> None:
        super().__init__(backbone, optimizer, scheduler, scheduler_interval)
        backbone.head.requires_grad_(False)
        for stage in ("train", "val", "test"):
            # Every batch has its own classes, so their number is only a bound.
            accuracy = MulticlassAccuracy(_MOST_TEXTS, average="micro", validate_args=False)
            setattr(self, f"{stage}_acc", accuracy)

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """Returns the loss of the batch."""
        return super().training_step(self._with_texts(batch), batch_idx)

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Logs ``val/loss`` and ``val/acc``."""
        super().validation_step(self._with_texts(batch), batch_idx)

    def outputs(self, batch: dict[str, Any]) -> ClipOutput:
        """Similarities of all images with all distinct captions."""
        clip = self.backbone.clip
        images, texts = clip.encode_image(batch["image"]), clip.encode_tokens(batch["ids"])
        scale = clip.model.logit_scale.exp()  # type: ignore[operator]
        return ClipOutput(scale * images @ texts.T)

    def losses(self, outputs: ClipOutput, batch: dict[str, Any]) -> Tensors:
        """Both directions, half each."""
        label = batch["label"]
        count = torch.bincount(label, minlength=outputs.logits.shape[1])
        # Each text counts once, however many images it has.
        share = 1.0 / (count[label] * len(count))
        own = F.log_softmax(outputs.logits, dim=0).gather(1, label[:, None])[:, 0]
        return {
            "image_to_text": 0.5 * F.cross_entropy(outputs.logits, label),
            "text_to_image": -0.5 * (share * own).sum(),
        }

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Matrices with decay, everything else without."""
        parameters = [p for p in self.parameters() if p.requires_grad]
        return [
            {"params": [p for p in parameters if p.ndim > 1]},
            {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
        ]

    @torch.no_grad()
    def on_train_batch_end(self, *_: Any) -> None:
        """Bounds the logit scale."""
        self.backbone.clip.model.logit_scale.clamp_(max=_MAX_LOG_SCALE)  # type: ignore[operator]

    def on_validation_epoch_start(self) -> None:
        """Brings the head up to date before a checkpoint is written."""
        self.backbone.reset_head()

    def _with_texts(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Adds ``ids [U, L]`` of the distinct captions; ``label [B]`` is the row of each image."""
        captions = batch["caption"]
        texts = {caption: row for row, caption in enumerate(dict.fromkeys(captions))}
        stop = torch.rand(len(texts)) < (0.5 if self.training else 0.0)
        ids = self.backbone.clip.tokenizer(
            [f"{text}." if dot else text for text, dot in zip(texts, stop, strict=True)]
        )
        label = torch.tensor([texts[caption] for caption in captions])
        return {**batch, "ids": ids.to(self.device), "label": label.to(self.device)}


def untrained_backbone(
    folder: str | None,
    classes: Sequence[str],
    templates: Sequence[str] | None = None,
    num_classes: int | None = None,
) -> ClipBackbone:
    """As :func:`clip_backbone` on a CLIP with fresh, trainable weights.

    Args:
        folder: with the configuration and vocabulary, see :func:`untrained_clip`.
        classes: names of the ID classes in the data.
        templates: see :func:`zero_shot_weights`.
        num_classes: expected number of classes, checked.
    """
    clip = untrained_clip(folder).unfreeze()
    backbone = clip_backbone(clip, classes, templates=templates, num_classes=num_classes)
    assert isinstance(backbone, ClipBackbone)
    return backbone
