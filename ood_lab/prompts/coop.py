"""CoOp (arXiv:2109.01134), and what all prompt learners share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Unpack

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from ood_lab.common.errors import UserError
from ood_lab.common.grouping import with_keys
from ood_lab.common.tensor_arithmetic import full_precision
from ood_lab.common.tensor_file import Batch
from ood_lab.models.output import Output
from ood_lab.models.training.classifier import Classifier, Schedule
from ood_lab.models.weights_formats import Checkpoint
from ood_lab.prompts.backbone import PromptBackbone


class PromptLearner(Classifier):
    """Trains the prompts of a :class:`PromptBackbone`; everything of CLIP stays frozen.

    Image features are computed without gradients. Validation runs through the head, which is
    brought up to date first. Checkpoints hold only the prompts, in float32, and under
    ``prompts`` the class names, the template, the temperature and the identity of the CLIP, which
    are compared by name when they are loaded.

    Args:
        backbone: the network.
        optimizer: see :class:`Classifier`.
        schedule: of the learning rate.
    """

    backbone: PromptBackbone
    strict_loading = False  # the CLIP is not in the checkpoint

    def outputs(self, batch: Batch) -> Any:
        """In training with gradients to the prompts, else through the head."""
        return self.train_outputs(batch) if self.training else self.backbone(batch["image"])

    def train_outputs(self, batch: Batch) -> Any:
        """What the losses need; must have ``logits [B, C]``."""
        raise NotImplementedError

    def scaled(self, features: Tensor, texts: Tensor) -> Tensor:
        """Cosines times the logit scale, in float32 under any precision of the trainer."""
        with full_precision(features):
            return self.backbone.clip.logit_scale * (features.float() @ texts.float().T)

    def on_validation_epoch_start(self) -> None:
        """Brings the head up to date."""
        self.backbone.reset_head()

    on_test_epoch_start = on_validation_epoch_start

    def on_save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Keeps only the prompts, and says what they were learned for."""
        super().on_save_checkpoint(checkpoint)
        kept = {f"backbone.{name}" for name in self.backbone.learned.state_dict()}
        weights = checkpoint["state_dict"]
        checkpoint["state_dict"] = with_keys(weights, kept)
        checkpoint["prompts"] = self.backbone.settings

    def on_load_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Rejects prompts of other classes or another CLIP."""
        self.backbone.check_settings(checkpoint.get("prompts"), "the checkpoint")


class CoOp(PromptLearner):
    """Context optimisation: ``loss = CE(s f·t_c, y)`` over the learned vectors in the texts.

    With ``cache_views`` every training image is encoded once, before the first step, under the
    evaluation transform, and ``model.geometry`` and ``model.augment`` have no effect. A step then
    costs only the text tower, but each epoch sees the same view of each image instead of a new
    random crop: with few images the prompts fit these views more closely. It takes 4·N·d bytes.

    In several processes the gradients are means over equal parts of the batch, so that the numbers
    are those of one process with the whole batch, up to rounding and to the order in which the
    images are dealt out.

    Args:
        backbone: the network.
        optimizer: see :class:`Classifier`.
        schedule: of the learning rate.
        cache_views: encode each image once.
    """

    def __init__(
        self,
        backbone: PromptBackbone,
        optimizer: Callable[..., Optimizer],
        cache_views: bool = False,
        **schedule: Unpack[Schedule],
    ) -> None:
        super().__init__(backbone, optimizer, **schedule)
        self.cache_views = cache_views
        self._views: Tensor | None = None

    @torch.no_grad()
    def on_fit_start(self) -> None:
        """Encodes the training images, if they are to be kept."""
        if not self.cache_views:
            return
        data: Any = self.trainer.datamodule  # type: ignore[attr-defined]
        if data is None:
            raise UserError(
                "model.classifier.cache_views=true needs a DataModule: fit with datamodule=..."
            )
        encode = self.backbone.clip.encode_image
        parts = [encode(b["image"].to(self.device)) for b in data.predict_loader("train")]
        self._views = torch.cat(parts)
        data.leave_out_images()

    def train_outputs(self, batch: Batch) -> Output:
        """Logits of the batch, from the kept features where there are any."""
        if self._views is not None:
            features = self._views[batch["index"]]
        else:
            with torch.no_grad():
                features = self.backbone.clip.encode_image(batch["image"])
        return Output(self.scaled(features, self.backbone.class_texts()), features)


def warmup_cosine(optimizer: Optimizer, T_max: int, warmup_lr: float = 1e-5) -> LambdaLR:
    """One epoch at a constant small rate, then a cosine that never reaches 0.

    ``lr(0) = warmup_lr``; ``lr(e) = lr/2 (1 + cos(π (e - 1) / E))`` for e = 1 .. E - 1.

    Args:
        optimizer: its ``lr`` is that of the cosine.
        T_max: E, the epochs of the training; named as torch's own cosine names it, so that it is
            filled in where the configuration leaves it open.
        warmup_lr: of epoch 0.
    """
    lr = float(optimizer.defaults["lr"])

    def factor(epoch: int) -> float:
        if epoch == 0:
            return warmup_lr / lr
        return 0.5 * (1 + math.cos(math.pi * (epoch - 1) / T_max))

    return LambdaLR(optimizer, factor)
