"""How the tiny vision-language model learns, from nothing."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from transformers.modeling_outputs import BaseModelOutputWithPooling

from ood_lab.builtin.vlm.grounding import Grounding
from ood_lab.builtin.vlm.packed_batches import Packed
from ood_lab.builtin.vlm.tower_alignment import read_the_tower
from ood_lab.lvlm.training.examples import Example
from ood_lab.lvlm.training.tuning_module import VlmTuning


class TinyVlmTuning(VlmTuning):
    """Teaches the tiny model from nothing, in three stages.

    First its tower learns to name what is where (:class:`Grounding`). Then the language model is
    joined to it (:func:`~ood_lab.builtin.vlm.tower_alignment.read_the_tower`) and learns to answer
    while tower and first layer of the projector rest: the tower sees every image once, its features
    are kept in memory (46 KB an image). Then all learn together.

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
        """Parameters that this epoch does not change."""
        inner = self.model.model
        first = list(inner.multi_modal_projector.linear_1.parameters())
        if self._joins:
            return [*self._tower.parameters(), *first, *self.grounding.parameters()]
        if self.current_epoch < self.tower_epochs:
            projector = inner.multi_modal_projector.parameters()
            return [*inner.language_model.parameters(), *projector]
        return []
