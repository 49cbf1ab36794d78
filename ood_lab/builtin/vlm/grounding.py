"""What is where: the loss by which a vision tower learns to name objects."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ood_lab.lvlm.training.examples import Example

#: Exponent of the focal factor (arXiv 1708.02002): cells without anything are far more.
_FOCUS = 2.0


class Grounding(nn.Module):
    """A linear map from a tower's features to words: what is here?

    A feature ``f`` names word ``w`` with the logit ``z = <a_w, f> + b_w``. The target ``t`` of a
    word is the centre of its objects, shared out over the four nearest features bilinearly. ::

        loss = sum_cells,words |sigmoid(z) - t|^2 BCE(z, t) / sum t
               + presence * BCE(a logsumexp_cells z + c, word is somewhere)

    The pooling by log-sum-exp keeps small objects, which a mean would lose.

    Args:
        words: to be named.
        features: width of the tower's features.
        grid: rows and columns of features.
        presence: weight of the second part.
    """

    def __init__(
        self, words: Sequence[str], features: int, grid: tuple[int, int], presence: float = 10.0
    ) -> None:
        super().__init__()
        self.words = {word: row for row, word in enumerate(words)}
        self.grid = grid
        self.presence = presence
        self.head = nn.Linear(features, len(words))
        nn.init.constant_(self.head.bias, -4.6)  # cells without anything: sigmoid -> 0.01
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

    def forward(self, features: Tensor, targets: Tensor) -> Tensor:
        """The loss.

        Args:
            features: of the images, ``[B, rows * columns, D]``.
            targets: see :meth:`targets`.
        """
        logits = self.head(features.float())
        cross = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
        focus = (logits.sigmoid() - targets).abs() ** _FOCUS
        where = (focus * cross).sum() / targets.sum().clamp(min=1.0)
        pooled = self.pooled[0] * logits.logsumexp(1) + self.pooled[1]
        present = (targets.sum(1) > 0).float()
        return where + self.presence * F.binary_cross_entropy_with_logits(pooled, present)
