"""A LightningModule that trains itself, and what else a run needs of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import nn
from torchmetrics.classification import MulticlassAccuracy

from ood_lab.common.errors import UserError
from ood_lab.models.loading.wrapped_network import WrappedBackbone
from ood_lab.models.weights_formats import Checkpoint

#: What a module must define to train itself.
NEEDED = ("training_step", "configure_optimizers")
_PLAIN = (bool, int, float, str, type(None))


def own_steps(net: nn.Module) -> list[str]:
    """Which of :data:`NEEDED` a network defines; all of them where it trains itself."""
    if not isinstance(net, LightningModule):
        return []
    return [name for name in NEEDED if is_overridden(name, net)]


class OwnTraining(Callback):
    """For a LightningModule that trains itself: validation accuracy, and whole checkpoints.

    After every validation it logs ``val/acc``, the top-1 accuracy of the module's logits on all
    validation images, by which the best epoch is kept: one more forward pass over them. A module
    without a ``validation_step`` gets an empty one. Checkpoints carry the backbone's
    ``data_config``, and of the hyperparameters what is plain, so that they load with
    ``weights_only=True``.

    Args:
        backbone: the module as a backbone.
        batch: the entries of a batch that the module gets, in order; None = the whole dict.

    Raises:
        UserError: ``batch`` lacks ``image`` or ``label``.
    """

    def __init__(self, backbone: WrappedBackbone, batch: Sequence[str] | None) -> None:
        if batch is not None and not {"image", "label"} <= set(batch):
            raise UserError(f"model.batch={list(batch)}: image and label must be among them")
        self.backbone = backbone
        self.batch = batch
        self.accuracy = MulticlassAccuracy(backbone.num_classes, average="micro")
        if not is_overridden("validation_step", module := backbone.net):
            module.validation_step = _no_step  # type: ignore[assignment]

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begins to count."""
        self.accuracy = self.accuracy.to(pl_module.device)
        self.accuracy.reset()

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, *_: Any
    ) -> None:
        """Counts what is right; the validation loop has switched gradients and dropout off."""
        if self.batch is None:
            image, label = batch["image"], batch["label"]
        else:
            image, label = (batch[self.batch.index(key)] for key in ("image", "label"))
        with trainer.precision_plugin.forward_context():
            self.accuracy.update(self.backbone(image).logits, label)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Logs ``val/acc`` over all processes."""
        accuracy = self.accuracy.compute()
        pl_module.log("val/acc", accuracy, prog_bar=True, rank_zero_only=False)

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: Checkpoint
    ) -> None:
        """Adds the transform, and takes out what would have to be pickled."""
        checkpoint["data_config"] = dict(self.backbone.data_config)
        kept = {k: v for k, v in checkpoint.get("hyper_parameters", {}).items() if _is_plain(v)}
        checkpoint.pop("hparams_type", None)
        if "hyper_parameters" in checkpoint:
            checkpoint["hyper_parameters"] = kept


def _no_step(batch: Any, batch_idx: int) -> None:
    """A validation of nothing but the accuracy."""


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return type(value) is dict and all(map(_is_plain, [*value, *value.values()]))
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, _PLAIN)
