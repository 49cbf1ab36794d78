"""Examples for supervised fine-tuning, and the batches that a model learns from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import lightning as L
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Sampler

from ood_lab.common.arguments import Count, Fields, Natural
from ood_lab.common.grouping import common_start
from ood_lab.common.tensor_file import Tensors
from ood_lab.common.training_epoch import coming_epoch
from ood_lab.data.datamodules.epoch_sampler import DeviceShare, EpochSampler
from ood_lab.lvlm.chat.base import Message
from ood_lab.lvlm.chat.loaded_model import encoded, rendered

#: Label of a token that is not learned.
IGNORED = -100

Conversation = Sequence[Message]
"""Messages in the form of transformers' chat templates; the last one is the assistant's."""


@dataclass(frozen=True)
class Example:
    """An image and the conversation about it.

    Attributes:
        image: RGB, or None.
        conversations: each is learned apart from the others: its last message only.
    """

    image: Image.Image | None
    conversations: Sequence[Conversation]


def conversation(question: str, answer: str) -> Conversation:
    """A question about the image, and its answer."""
    content = [{"type": "image"}, {"type": "text", "text": question}]
    reply = [{"type": "text", "text": answer}]
    return [{"role": "user", "content": content}, {"role": "assistant", "content": reply}]


@dataclass(frozen=True)
class ConversationRows:
    """Batches of one conversation a row, for any model with a chat template.

    Args:
        processor: of the model.
    """

    processor: Any

    def __call__(self, examples: Sequence[Example]) -> Fields:
        """``inputs`` of the model with ``labels [B, L]``: -100 but on the last message."""
        pairs = [(e.image, c) for e in examples for c in e.conversations]
        conversations = [rendered(self.processor, c, reply=False) for _, c in pairs]
        prompts = [rendered(self.processor, c[:-1]) for _, c in pairs]
        images = [[] if image is None else [image] for image, _ in pairs]
        inputs = self._encode(conversations, images)
        attended = inputs["attention_mask"].bool()
        learned = torch.zeros_like(attended)
        # Padding on the left moves a prompt's length, so it is counted without any; the end of a
        # prompt may join what follows it.
        for row, prompt in enumerate(self._unpadded(prompts, images)):
            places = attended[row].nonzero()[:, 0]
            ids = inputs["input_ids"][row, places].tolist()
            learned[row, places[common_start(prompt, ids) :]] = True
        if "labels" in inputs and "token_type_ids" in inputs:
            # PaliGemma sees its prompt from both sides, and what it learns from one alone.
            inputs["token_type_ids"] = learned.long()
        return {"inputs": {**inputs, "labels": inputs["input_ids"].masked_fill(~learned, IGNORED)}}

    def _encode(self, texts: list[str], images: list[list[Image.Image]]) -> Tensors:
        side = self.processor.tokenizer.padding_side
        some = [bool(row) for row in images]
        if any(some) and not all(some):  # most processors want them by text, others all together
            try:
                return dict(encoded(self.processor, texts, images, side))
            except (ValueError, IndexError, TypeError, AttributeError):
                images = [row for row in images if row]
        return dict(encoded(self.processor, texts, images, side))

    def _unpadded(self, texts: list[str], images: list[list[Image.Image]]) -> list[list[int]]:
        results = self._encode(texts, images)
        rows = zip(results["input_ids"], results["attention_mask"].bool(), strict=True)
        return [ids[mask].tolist() for ids, mask in rows]


class Prompt(NamedTuple):
    """A question about an image.

    Attributes:
        image: RGB.
        text: the question.
        truth: ``yes`` or ``no``.
    """

    image: Image.Image
    text: str
    truth: str


class Chats(L.LightningDataModule):
    """Training and validation examples.

    Args:
        train: examples to learn from.
        val: examples to choose the epoch by; None = the last one is taken.
        batch_size: examples a training batch, on each device.
        eval_batch_size: examples a validation batch.
        num_workers: loader processes.
        seed: of the order.

    Attributes:
        collate: makes a batch; set by those who know the model.
    """

    collate: Callable[[Sequence[Any]], Any]

    def __init__(
        self,
        train: Dataset[Any],
        val: Dataset[Any] | None = None,
        batch_size: Count = 32,
        eval_batch_size: Count = 64,
        num_workers: Natural = 0,
        seed: Natural = 0,
    ) -> None:
        super().__init__()
        self.train = train
        self.val = val
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size
        self.num_workers = num_workers
        self.seed = seed

    def train_dataloader(self) -> DataLoader[Any]:
        """Batches in an order that depends only on seed and epoch."""
        size = len(self.train)  # type: ignore[arg-type]  # ours have a length
        order: Sampler[Any] = EpochSampler(size, self.seed, lambda: coming_epoch(self.trainer))
        if self.trainer:
            devices, device = self.trainer.world_size, self.trainer.global_rank
            order = DeviceShare(order, devices, device, len(order))  # type: ignore[arg-type]
        return self._loader(self.train, self.batch_size, sampler=order)

    def val_dataloader(self) -> DataLoader[Any] | list[Any]:
        """Batches in order; none without validation examples."""
        # none, or an empty one
        return self._loader(self.val, self.eval_batch_size) if self.val else []

    def _loader(self, data: Dataset[Any], size: int, **options: Any) -> DataLoader[Any]:
        collate, workers = self.collate, self.num_workers
        return DataLoader(data, size, collate_fn=collate, num_workers=workers, **options)
