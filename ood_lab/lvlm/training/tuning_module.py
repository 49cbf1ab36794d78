"""Supervised fine-tuning of vision-language models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import lightning as L
import torch.nn.functional as F
import transformers
from torch import Tensor
from torch.optim import Optimizer

from ood_lab.common.arguments import Fields, Settings
from ood_lab.common.errors import reported_as
from ood_lab.common.files import share
from ood_lab.lvlm.training.examples import IGNORED, ConversationRows, Example

#: Parts of most models of this kind, by the names that their parameters begin with.
_TOWERS = ("vision_tower", "visual", "vision_model")
_PROJECTORS = ("multi_modal_projector", "connector", "merger")


class VlmTuning(L.LightningModule):
    """Next-token loss on the assistant's words, for any ``AutoModelForImageTextToText``.

    Batches are those of :class:`~ood_lab.lvlm.training.examples.ConversationRows`.

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
        lora: Settings | None = None,
    ) -> None:
        super().__init__()
        self.model = with_lora(model, lora) if lora else model
        self._lora = lora
        self.processor = processor
        self._make_optimizer = optimizer
        self._make_scheduler = scheduler
        for name, parameter in model.named_parameters() if lora is None else ():
            tower = any(part in name for part in _TOWERS)
            projector = any(part in name for part in _PROJECTORS)
            wanted = {"all": True, "projector": projector, "language": not tower}[train]
            parameter.requires_grad_(wanted)

    @property
    def collate(self) -> Callable[[Sequence[Example]], Fields]:
        """Makes batches of examples."""
        return ConversationRows(self.processor)

    def training_step(self, batch: Fields, batch_idx: int) -> Tensor:
        """The loss of a batch."""
        loss = self.language_loss(batch)
        size = len(batch["inputs"]["input_ids"])
        self.log("train/loss", loss, prog_bar=True, on_step=False, on_epoch=True, batch_size=size)
        return loss

    def validation_step(self, batch: Fields, batch_idx: int) -> None:
        """Logs ``val/loss``."""
        size = len(batch["inputs"]["input_ids"])
        self.log("val/loss", self.language_loss(batch), batch_size=size, sync_dist=True)

    def language_loss(self, batch: Fields) -> Tensor:
        """Mean cross-entropy of the tokens that are learned."""
        dtype = self.model.dtype  # Llama 4's processor gives bfloat16
        inputs = {
            key: value.to(dtype) if value.is_floating_point() else value
            for key, value in batch["inputs"].items()
            if key != "labels"
        }
        labels = batch["inputs"]["labels"][:, 1:]
        learned = labels != IGNORED
        # Not transformers' own loss, which makes logits of every token.
        logits = self.model(**inputs).logits[:, :-1][learned].float()
        return F.cross_entropy(logits, labels[learned])

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

    def save(self, folder: Path) -> None:
        """Writes model and processor as a folder that transformers loads.

        Adapters of LoRA are merged into the weights.
        """
        transformers.logging.disable_progress_bar()  # a bar of one shard tells nothing
        model = self.model.merge_and_unload() if self._lora else self.model
        model.save_pretrained(folder)
        self.processor.save_pretrained(folder)
        for file in folder.iterdir():
            share(file)


def with_lora(model: Any, settings: Settings) -> Any:
    """The model with adapters of low rank (arXiv 2106.09685), the only part that is trained.

    Raises:
        UserError: peft is missing, or does not know a setting.
    """
    with reported_as("model.lora needs peft: pip install 'ood_lab[lora]'", ImportError):
        from peft import LoraConfig, get_peft_model
    with reported_as(f"model.lora={dict(settings)}: {{reason}}", (TypeError, ValueError)):
        return get_peft_model(model, LoraConfig(**settings))
