"""Examples for supervised fine-tuning, and the batches that a model learns from."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from ood_lab.lvlm.chat.model import encoded

#: Label of a token that is not learned.
IGNORED = -100

Conversation = Sequence[Mapping[str, Any]]
"""Messages in the form of transformers' chat templates; the last one is the assistant's."""


@dataclass(frozen=True)
class Example:
    """An image and what is said about it.

    Attributes:
        image: RGB, or None.
        conversations: each is learned apart from the others: its last message only.
        kinds: what each asks (``yes_no`` or another word), for validation.
        grounds: what is where, for the tower: words and the centre of their object, in shares of
            the image's width and height.
        key: of the image, the same for the same pixels; None = unknown.
    """

    image: Image.Image | None
    conversations: Sequence[Conversation]
    kinds: Sequence[str] = ()
    grounds: Sequence[tuple[Sequence[str], tuple[float, float]]] = ()
    key: Hashable = None


def conversation(question: str, answer: str, image: bool = True) -> Conversation:
    """A question about the image, and its answer."""
    content: list[dict[str, str]] = [{"type": "image"}] if image else []
    content.append({"type": "text", "text": question})
    reply = [{"type": "text", "text": answer}]
    return [{"role": "user", "content": content}, {"role": "assistant", "content": reply}]


class Rows:
    """Batches of one conversation a row, for any model with a chat template.

    Args:
        processor: of the model.
    """

    def __init__(self, processor: Any) -> None:
        self.processor = processor

    def __call__(self, examples: Sequence[Example]) -> dict[str, Any]:
        """``inputs`` of the model with ``labels [B, L]``: -100 but on the last message."""
        pairs = [(e.image, c) for e in examples for c in e.conversations]
        whole = [self._render(c, prompt=False) for _, c in pairs]
        prompts = [self._render(c[:-1], prompt=True) for _, c in pairs]
        images = [[] if image is None else [image] for image, _ in pairs]
        inputs = self._encode(whole, images)
        attended = inputs["attention_mask"].bool()
        learned = torch.zeros_like(attended)
        # Padding on the left moves a prompt's length, so it is counted without any.
        for row, prompt in enumerate(self._unpadded(prompts, images)):
            places = attended[row].nonzero()[:, 0]
            ids = inputs["input_ids"][row, places].tolist()
            learned[row, places[_common(prompt, ids) :]] = True
        if "labels" in inputs and "token_type_ids" in inputs:
            # PaliGemma sees its prompt from both sides, and what it learns from one alone.
            inputs["token_type_ids"] = learned.long()
        labels = inputs["input_ids"].masked_fill(~learned, IGNORED)
        kinds = [kind for e in examples for kind in e.kinds]
        return {"inputs": {**inputs, "labels": labels}, "kinds": kinds}

    def _render(self, messages: Conversation, prompt: bool) -> str:
        text: str = self.processor.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=prompt
        )
        return text

    def _encode(self, texts: list[str], images: list[list[Image.Image]]) -> dict[str, Tensor]:
        side = self.processor.tokenizer.padding_side
        some = [bool(own) for own in images]
        if any(some) and not all(some):  # most processors want them by text, others all together
            try:
                return dict(encoded(self.processor, texts, images, side))
            except (ValueError, IndexError, TypeError, AttributeError):
                images = [own for own in images if own]
        return dict(encoded(self.processor, texts, images, side))

    def _unpadded(self, texts: list[str], images: list[list[Image.Image]]) -> list[list[int]]:
        found = self._encode(texts, images)
        rows = zip(found["input_ids"], found["attention_mask"].bool(), strict=True)
        return [ids[mask].tolist() for ids, mask in rows]


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two texts begin with alike: the end of a prompt may join what follows it."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


class Packed:
    """Batches of one image a row, behind which its conversations follow, unseen by each other.

    Every conversation continues the image: its positions start behind it, and attention is masked
    by block. What a model sees is what it sees when it is asked once; the image is paid for once.
    For models with rotary positions of one dimension whose prompts start with the image.

    Args:
        processor: of the model, with ``image_token``.
        image_tokens: visual tokens of an image.
        targets: of the examples of a batch, for a loss beside that of the words.
    """

    def __init__(
        self,
        processor: Any,
        image_tokens: int,
        targets: Callable[[Sequence[Example]], Tensor] | None = None,
    ) -> None:
        self.processor = processor
        self.image_tokens = image_tokens
        self.targets = targets
        self._image = processor.tokenizer.convert_tokens_to_ids(processor.image_token)
        self._known: dict[str, tuple[list[int], list[int], list[int]]] = {}

    def __call__(self, examples: Sequence[Example]) -> dict[str, Any]:
        """``inputs`` with ``attention_mask [B, 1, L, L] bool``, ``labels`` and ``weights``.

        ``weights [B, L]``: one over the number of learned tokens of the conversation, so that long
        answers count no more than short ones.
        """
        rows = [self._row(example) for example in examples]
        length = max(len(row.ids) for row in rows)
        pad = self.processor.tokenizer.pad_token_id
        pixels = self.processor.image_processor(
            images=[e.image for e in examples], return_tensors="pt"
        )["pixel_values"]
        inputs = {
            "input_ids": torch.stack([_padded(row.ids, length, pad) for row in rows]),
            "position_ids": torch.stack([_padded(row.positions, length, 0) for row in rows]),
            "attention_mask": torch.stack([row.mask(length) for row in rows]),
            "labels": torch.stack([_padded(row.labels, length, IGNORED) for row in rows]),
            "pixel_values": pixels,
        }
        weights = torch.stack([_padded(row.weights, length, 0.0) for row in rows])
        kinds = [kind for example in examples for kind in example.kinds]
        keys = [example.key for example in examples]
        batch = {"inputs": inputs, "weights": weights, "kinds": kinds, "keys": keys}
        return batch if self.targets is None else {**batch, "targets": self.targets(examples)}

    def _row(self, example: Example) -> _Row:
        row: _Row | None = None
        for messages in example.conversations:
            text = repr(messages)
            if text not in self._known:  # questions come again and again
                self._known[text] = self._encoded(messages)
            before, prompt, answer = self._known[text]
            if row is None:
                row = _Row([*before, *[self._image] * self.image_tokens])
            row.add(prompt, answer)
        assert row is not None
        return row

    def _encoded(self, messages: Conversation) -> tuple[list[int], list[int], list[int]]:
        """Tokens before the image, between it and the answer, and of the answer."""
        prompt, whole = self._render(messages[:-1], True), self._render(messages, False)
        before, after = prompt.split(self.processor.image_token)
        parts = before, after, whole[len(prompt) :]
        tokenizer = self.processor.tokenizer
        ids = [tokenizer(part, add_special_tokens=False)["input_ids"] for part in parts]
        return ids[0], ids[1], ids[2]

    def _render(self, messages: Conversation, prompt: bool) -> str:
        text: str = self.processor.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=prompt
        )
        return text


class _Row:
    """A row of a packed batch while it grows."""

    def __init__(self, prefix: list[int]) -> None:
        self.prefix = len(prefix)
        self.ids = list(prefix)
        self.positions = list(range(len(prefix)))
        self.blocks = [0] * len(prefix)
        self.labels = [IGNORED] * len(prefix)
        self.weights = [0.0] * len(prefix)
        self._count = 0

    def add(self, prompt: list[int], answer: list[int]) -> None:
        new = [*prompt, *answer]
        self._count += 1
        self.ids += new
        self.positions += range(self.prefix, self.prefix + len(new))
        self.blocks += [self._count] * len(new)
        self.labels += [IGNORED] * len(prompt) + answer
        self.weights += [0.0] * len(prompt) + [1.0 / len(answer)] * len(answer)

    def mask(self, length: int) -> Tensor:
        """``[1, L, L] bool``: what comes before, in the prefix or the same block."""
        blocks = _padded(self.blocks, length, -1)
        seen = (blocks[:, None] == blocks) | (blocks == 0)
        return (seen & torch.ones(length, length, dtype=torch.bool).tril())[None]


def _padded(values: Sequence[float], length: int, pad: float) -> Tensor:
    return torch.tensor([*values, *[pad] * (length - len(values))])
