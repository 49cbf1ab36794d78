"""Batches in which the conversations about an image share its tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ood_lab.lvlm.training.examples import IGNORED, Conversation, Example


class Packed:
    """Batches of one image a row, behind which its conversations follow, unseen by each other.

    Every conversation continues the image: its positions start behind it, and attention is masked
    by block. A model sees the same as for one question; the image is paid for once.
    For models with rotary positions of one dimension whose prompts start with the image.

    Args:
        processor: of the model, with ``image_token``.
        image_tokens: visual tokens of an image.
        targets: of the examples of a batch, for a loss in addition to that of the words.
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
