"""Supervised fine-tuning of vision-language models."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import lightning as L
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn
from torch.optim import Optimizer
from transformers.modeling_outputs import BaseModelOutputWithPooling

from ood_lab.errors import UserError
from ood_lab.io import share
from ood_lab.lvlm.training.examples import IGNORED, Example, Packed, Rows
from ood_lab.lvlm.training.grounding import Grounding
from ood_lab.lvlm.training.reading import read_the_tower

#: Parts of most models of this kind, by the names that their parameters begin with.
_TOWERS = ("vision_tower", "visual", "vision_model")
_PROJECTORS = ("multi_modal_projector", "connector", "merger")


class VlmTuning(L.LightningModule):
    """Next-token loss on the assistant's words, for any ``AutoModelForImageTextToText``.

    Batches are those of :class:`~ood_lab.lvlm.training.examples.Rows` or ``Packed``. Where they
    have weights, every conversation counts as much as any other. ``val/acc`` is the share of
    yes/no questions whose first answer token is the right one, and that of the smaller class of
    the two (``val/acc_yes``, ``val/acc_no``) is logged, too.

    Args:
        model: loaded, or untrained.
        processor: its processor, saved beside it.
        optimizer: makes the optimiser from parameter groups (a partial).
        scheduler: makes the scheduler from optimiser and ``total_steps`` (a partial), or None.
        train: parts that are trained, ``all``, or ``projector`` alone.
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
            self.log(f"val/acc_{kind}", share, batch_size=int(mine.sum()), sync_dist=True)

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


class TinyVlmTuning(VlmTuning):
    """Teaches the tiny model from nothing, in three stages.

    First its tower learns to name what is where (:class:`Grounding`). Then the language model is
    joined to it (:func:`~ood_lab.lvlm.training.reading.read_the_tower`) and learns to answer while
    tower and first layer of the projector rest: the tower sees every image once, its features are
    kept in memory (46 KB an image). Then all learn together.

    Args:
        model: see :class:`VlmTuning`.
        processor: see :class:`VlmTuning`.
        optimizer: see :class:`VlmTuning`.
        grounding: the loss of the tower.
        tower_epochs: of the first stage.
        join_epochs: of the second.
        weight: of the grounding loss in the third stage.
        scheduler: see :class:`VlmTuning`.
    """

    def __init__(
        self,
        model: Any,
        processor: Any,
        optimizer: Callable[..., Optimizer],
        grounding: Grounding,
        tower_epochs: int = 4,
        join_epochs: int = 8,
        weight: float = 0.2,
        scheduler: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(model, processor, optimizer, scheduler)
        self.grounding = grounding
        self.tower_epochs = tower_epochs
        self.join_epochs = join_epochs
        self.weight = weight
        self._kept: dict[Hashable, Tensor] = {}

    @property
    def collate(self) -> Callable[[Sequence[Example]], dict[str, Any]]:
        """Makes batches of one image a row, with what the tower learns from."""
        rows, columns = self.grounding.grid
        return Packed(self.processor, rows * columns, self.grounding.targets)

    def on_train_epoch_start(self) -> None:
        """Joins the language model, and sets the mode of the tower for the stage."""
        if self.current_epoch == self.tower_epochs:
            # The same on every process: it draws random directions.
            with torch.random.fork_rng():
                torch.manual_seed(0)
                read_the_tower(self.model.cpu(), self.processor.tokenizer, self.grounding.cpu())
            self.to(self.trainer.strategy.root_device)
        if not self._joins:
            self._kept.clear()
        self._tower.train(not self._joins)  # while it rests, its norms keep their statistics

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """The loss of the stage."""
        features = self._features(batch)
        # Processes wait for every gradient; those of what rests are zeros, and thrown away below.
        loss = sum((0.0 * p.sum() for p in self._resting()), features.new_zeros(()))
        if not self._joins:
            grounded = self.grounding(features, batch["targets"])
            self._log_training("train/grounding", grounded, batch)
            loss = loss + grounded
        if self.current_epoch < self.tower_epochs:
            return loss
        visual = self.model.model.multi_modal_projector(features)
        image = BaseModelOutputWithPooling(pooler_output=visual)
        given = {"pixel_values": None, "mm_encoder_outputs": {"image": image}}
        language, _ = self.language_loss(batch, **given)
        self._log_training("train/loss", language, batch)
        return language + self.weight * loss

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """What rests in this stage is not moved, by momentum or decay either."""
        for parameter in self._resting():
            parameter.grad = None

    def _logits(self, inputs: dict[str, Any], learned: Tensor) -> Tensor:
        """The head of a small model costs as much as a block: only what is learned goes there."""
        hidden = self.model.model(**inputs).last_hidden_state
        logits: Tensor = self.model.lm_head(hidden[:, :-1][learned])
        return logits

    def _features(self, batch: dict[str, Any]) -> Tensor:
        """Of the tower, ``[B, rows * columns, D]``; each image's once while the tower rests."""
        pixels = batch["inputs"]["pixel_values"]
        if not self._joins:
            return self._seen(pixels)
        keys = batch["keys"]
        new = [row for row, key in enumerate(keys) if key is None or key not in self._kept]
        found = {row: self._kept[key] for row, key in enumerate(keys) if row not in new}
        if new:
            with torch.no_grad():
                seen = self._seen(pixels[new])
            for row, features in zip(new, seen.to("cpu", torch.float16), strict=True):
                found[row] = features
                if keys[row] is not None:
                    self._kept[keys[row]] = features
        return torch.stack([found[row].to(pixels) for row in range(len(keys))])

    def _seen(self, pixels: Tensor) -> Tensor:
        features: Tensor = self._tower(pixels).last_hidden_state.flatten(2).mT
        return features

    @property
    def _tower(self) -> nn.Module:
        tower: nn.Module = self.model.model.vision_tower
        return tower

    @property
    def _joins(self) -> bool:
        """Whether this epoch is of the second stage."""
        return self.tower_epochs <= self.current_epoch < self.tower_epochs + self.join_epochs

    def _resting(self) -> list[nn.Parameter]:
        """Parameters that this epoch leaves as they are."""
        inner = self.model.model
        first = list(inner.multi_modal_projector.linear_1.parameters())
        if self._joins:
            return [*self._tower.parameters(), *first, *self.grounding.parameters()]
        if self.current_epoch < self.tower_epochs:
            projector = inner.multi_modal_projector.parameters()
            return [*inner.language_model.parameters(), *projector]
        return []


def with_lora(model: Any, settings: Mapping[str, Any]) -> Any:
    """The model with adapters of low rank (arXiv 2106.09685), which alone are trained.

    Raises:
        UserError: peft is missing, or does not know a setting.
    """
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise UserError("model.lora needs peft: pip install 'ood_lab[lora]'") from error
    try:
        return get_peft_model(model, LoraConfig(**settings))
    except (TypeError, ValueError) as error:
        raise UserError(f"model.lora={dict(settings)}: {error}") from error
