"""What is where: the loss by which a vision tower learns to name objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ood_lab.lvlm.training.examples import Example

#: Exponent of the focal factor (arXiv 1708.02002): cells without anything are far more.
_FOCUS = 2.0


class Grounding(nn.Module):
    """Visual tokens lie where the words of what they show lie.

    A visual token ``v`` of the language model's space names word ``w`` with the logit
    ``s <v, e_w / |e_w|> + b``, where ``e_w`` is the mean embedding of the word's tokens. The target
    ``t`` of a word is the centre of its objects, shared out over the four nearest tokens
    bilinearly. ::

        loss = sum_cells,words |sigmoid(z) - t|^2 BCE(z, t) / sum t
               + presence * BCE(a logsumexp_cells z + c, word is somewhere)

    The pooling by log-sum-exp keeps small objects, which a mean would lose.

    Args:
        words: to be named.
        tokenizer: of the model.
        grid: rows and columns of visual tokens.
        presence: weight of the second part.
    """

    ids: Tensor
    mask: Tensor

    def __init__(
        self, words: Sequence[str], tokenizer: Any, grid: tuple[int, int], presence: float = 10.0
    ) -> None:
        super().__init__()
        self.words = {word: row for row, word in enumerate(words)}
        self.grid = grid
        self.presence = presence
        ids = [tokenizer(f" {word}", add_special_tokens=False)["input_ids"] for word in words]
        longest = max(map(len, ids))
        rows = [row + [0] * (longest - len(row)) for row in ids]
        self.register_buffer("ids", torch.tensor(rows), persistent=False)
        lengths = torch.tensor([[len(row)] for row in ids])
        self.register_buffer("mask", torch.arange(longest) < lengths, persistent=False)
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.bias = nn.Parameter(torch.tensor(-4.6))
        self.pooled = nn.Parameter(torch.tensor([1.0, -2.5]))

    def targets(self, examples: Sequence[Example]) -> Tensor:
        """``[B, rows * columns, W]`` in 0..1."""
        heat = torch.zeros(len(examples), *self.grid, len(self.words))
        for image, example in enumerate(examples):
            for words, (x, y) in example.grounds:
                known = [self.words[word] for word in words if word in self.words]
                for row, column, share in self._cells(x, y):
                    heat[image, row, column, known] += share
        return heat.clamp_(max=1.0).flatten(1, 2)

    def _cells(self, x: float, y: float) -> list[tuple[int, int, float]]:
        rows, columns = self.grid
        across = min(max(x * columns - 0.5, 0.0), columns - 1.001)
        down = min(max(y * rows - 0.5, 0.0), rows - 1.001)
        left, top = int(across), int(down)
        u, v = across - left, down - top
        return [
            (top, left, (1 - u) * (1 - v)),
            (top, left + 1, u * (1 - v)),
            (top + 1, left, (1 - u) * v),
            (top + 1, left + 1, u * v),
        ]

    def forward(self, visual: Tensor, embeddings: Tensor, targets: Tensor) -> Tensor:
        """The loss.

        Args:
            visual: tokens of the images, ``[B, rows * columns, D]``.
            embeddings: of the vocabulary, ``[V, D]``.
            targets: see :meth:`targets`.
        """
        words = (embeddings[self.ids] * self.mask[..., None]).sum(1) / self.mask.sum(1)[:, None]
        logits = self.scale * visual.float() @ F.normalize(words.float(), dim=-1).T + self.bias
        cross = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
        focus = (logits.sigmoid() - targets).abs() ** _FOCUS
        where = (focus * cross).sum() / targets.sum().clamp(min=1.0)
        pooled = self.pooled[0] * logits.logsumexp(1) + self.pooled[1]
        present = (targets.sum(1) > 0).float()
        return where + self.presence * F.binary_cross_entropy_with_logits(pooled, present)
