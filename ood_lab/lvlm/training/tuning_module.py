"""Supervised fine-tuning of vision-language models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import lightning as L
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor
from torch.optim import Optimizer

from ood_lab.common.errors import reported_as
from ood_lab.common.files import share
from ood_lab.lvlm.training.examples import IGNORED, Example, Rows

#: Parts of most models of this kind, by the names that their parameters begin with.
_TOWERS = ("vision_tower", "visual", "vision_model")
_PROJECTORS = ("multi_modal_projector", "connector", "merger")


class VlmTuning(L.LightningModule):
    """Next-token loss on the assistant's words, for any ``AutoModelForImageTextToText``.

    Batches are those of :class:`~ood_lab.lvlm.training.examples.Rows`. Where they have weights,
    every conversation counts as much as any other. ``val/acc`` is the share of yes/no questions
    whose first answer token is the right one, and that of the smaller class of the two
    (``val/acc_yes``, ``val/acc_no``) is logged, too.

    Args:
        model: loaded, or untrained.
        processor: its processor, saved next to it.
        optimizer: makes the optimiser from parameter groups (a partial).
        scheduler: makes the scheduler from optimiser and ``total_steps`` (a partial), or None.
        train: parts that are trained, ``all``, or only ``projector``.
        lora: arguments of peft's ``LoraConfig``; None = the weights themselves are trained.
    """

    def __init__(
        self,
        model: Any,
        processor: Any,
        optimizer: Callable[..., Optimizer],
        scheduler: Callable[..., Any] | None = None,
        train: Literal["all", "projector", "language"] = "all",
        lora: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.model = with_lora(model, lora) if lora else model
        self.processor = processor
        self._make_optimizer = optimizer
        self._make_scheduler = scheduler
        if lora is None:
            self.thaw(train)

    def thaw(self, train: Literal["all", "projector", "language"]) -> None:
        """Chooses the parameters that are trained."""
        for name, parameter in self.model.named_parameters():
            tower = any(part in name for part in _TOWERS)
            projector = any(part in name for part in _PROJECTORS)
            wanted = {"all": True, "projector": projector, "language": not tower}[train]
            parameter.requires_grad_(wanted)

    @property
    def collate(self) -> Callable[[Sequence[Example]], dict[str, Any]]:
        """Makes batches of examples."""
        return Rows(self.processor)

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """The loss of a batch."""
        loss, _ = self.language_loss(batch)
        self._log_training("train/loss", loss, batch)
        return loss

    def _log_training(self, name: str, value: Tensor, batch: dict[str, Any]) -> None:
        """Logs the mean of the epoch; a batch counts by its rows, which Lightning would guess."""
        rows = len(batch["inputs"]["input_ids"])
        self.log(name, value, prog_bar=True, on_step=False, on_epoch=True, batch_size=rows)

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Logs ``val/loss`` and, of yes/no questions, ``val/acc``."""
        loss, right = self.language_loss(batch)
        size = len(right)
        self.log("val/loss", loss, batch_size=size, sync_dist=True)
        if not batch["kinds"]:
            return
        self.log("val/acc", right.float().mean(), batch_size=size, prog_bar=True, sync_dist=True)
        for kind in dict.fromkeys(batch["kinds"]):
            mine = torch.tensor([each == kind for each in batch["kinds"]], device=right.device)
            share = right[mine].float().mean()
            # Lightning divides the sum of weights by the number of devices, with no remainder.
            weight = int(mine.sum()) * self.trainer.world_size
            self.log(f"val/acc_{kind}", share, batch_size=weight, sync_dist=True)

    def language_loss(self, batch: dict[str, Any], **given: Any) -> tuple[Tensor, Tensor]:
        """The loss, and of each conversation, whether its first answer token is right.

        Args:
            batch: see above.
            given: inputs of the model in place of those of the batch.
        """
        kind = self.model.dtype  # Llama 4's processor gives bfloat16
        inputs = {
            key: value.to(kind) if value.is_floating_point() else value
            for key, value in batch["inputs"].items()
            if key != "labels"
        }
        labels = batch["inputs"]["labels"][:, 1:]
        learned = labels != IGNORED
        logits = self._logits({**inputs, **given}, learned).float()
        targets = labels[learned]
        each = F.cross_entropy(logits, targets, reduction="none")
        if "weights" in batch:
            weights = batch["weights"][:, 1:][learned]
            loss = (each * weights).sum() / weights.sum()
        else:
            loss = each.mean()
        before = F.pad(learned, (1, 0))[:, :-1]
        # Answers touch nowhere, also where conversations are packed: a prompt lies between them.
        first = (learned & ~before)[learned]
        return loss, (logits.argmax(-1) == targets)[first]

    def _logits(self, inputs: dict[str, Any], learned: Tensor) -> Tensor:
        """Of the next token, at the positions that are learned, ``[n, V]``."""
        # Not those of transformers' own loss, which are as many as there are tokens.
        logits: Tensor = self.model(**inputs).logits[:, :-1][learned]
        return logits

    def configure_optimizers(self) -> Any:
        """No weight decay on biases and norms."""
        named = [p for p in self.parameters() if p.requires_grad]
        optimizer = self._make_optimizer(
            [
                {"params": [p for p in named if p.ndim > 1]},
                {"params": [p for p in named if p.ndim <= 1], "weight_decay": 0.0},
            ]
        )
        if self._make_scheduler is None:
            return optimizer
        steps = int(self.trainer.estimated_stepping_batches)
        scheduler = self._make_scheduler(optimizer, total_steps=steps)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }

    def save(self, folder: Path, dtype: torch.dtype | None = None) -> None:
        """Writes model and processor as a folder that transformers loads.

        Adapters of LoRA are merged into the weights.
        """
        transformers.logging.disable_progress_bar()  # a bar of one shard tells nothing
        model = self.model.merge_and_unload() if hasattr(self.model, "peft_config") else self.model
        model.to(dtype=dtype).save_pretrained(folder) if dtype else model.save_pretrained(folder)
        self.processor.save_pretrained(folder)
        for file in folder.iterdir():
            share(file)


def with_lora(model: Any, settings: Mapping[str, Any]) -> Any:
    """The model with adapters of low rank (arXiv 2106.09685), the only part that is trained.

    Raises:
        UserError: peft is missing, or does not know a setting.
    """
    with reported_as("model.lora needs peft: pip install 'ood_lab[lora]'", ImportError):
        from peft import LoraConfig, get_peft_model
    with reported_as(f"model.lora={dict(settings)}: {{reason}}", (TypeError, ValueError)):
        return get_peft_model(model, LoraConfig(**settings))
