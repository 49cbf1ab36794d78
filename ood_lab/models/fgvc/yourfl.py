"""YourFL: "Your 'Flamingo' is My 'Bird': Fine-Grained, or Not" (arXiv 2011.09040)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ood_lab.common.tensor_file import Batch, Tensors
from ood_lab.models.fgvc.base import FGVCModule, FGVCNet
from ood_lab.models.fgvc.layers import elu_mlp, known_cross_entropy


class YourFLOutput(NamedTuple):
    """``logits [B, C]`` and ``features [B, D]`` of the finest level, ``levels`` of all of them.

    ``levels[l]`` is ``[B, C_l]``, coarse to fine, its last one ``logits``; ``category`` is
    ``[B, K]``, None where the data has none.
    """

    logits: Tensor
    features: Tensor
    levels: list[Tensor]
    category: Tensor | None


class YourFLNet(FGVCNet):
    """The max-pooled last map, embedded and cut into one chunk per level.

        v = ELU(BN(Linear(BN(GMP(map)))))   [B, width]
        v = [x_1, ..., x_L]                 x_1 is the coarsest level's

    The head of level l reads ``[x_l, sg(x_{l+1}), ..., sg(x_L)]``, sg = no gradient: fine features
    help to tell the coarse labels apart, but coarse labels do not shape them.

    ``features`` is x_L, the only input of the logits of the classes. The category has one more
    chunk and a head that reads nothing else.

    Deviation from the released code: the maximum is taken over the whole map, whatever its size;
    there it is a 7 x 7 window, the whole map at 224 pixels.
    """

    method = "YourFL"
    needs = ("levels",)

    def add_heads(self, width: int = 600) -> None:
        """Adds the embedding and the heads.

        Args:
            width: of the embedding; rounded down to a multiple of the number of chunks.
        """
        space = self.labels
        depth = len(space.level_sizes)
        chunks = depth + bool(space.categories)
        self.chunk = size = width // chunks
        self.pool = nn.Sequential(nn.AdaptiveMaxPool2d(1), nn.Flatten())
        self.neck = elu_mlp(self.channels[-1], size * chunks)
        self.heads = nn.ModuleList(
            nn.Linear((depth - level) * size, labels)
            for level, labels in enumerate(space.level_sizes)
        )
        self.level_heads = tuple(f"heads.{level}" for level in range(depth - 1))
        if space.categories:
            self.category = nn.Linear(size, space.categories)
            self.category_head = "category"

    @property
    def head(self) -> nn.Linear:  # type: ignore[override]  # an alias would double the state dict
        """The head of the finest level, ``[C, D]``."""
        head = self.heads[-1]
        assert isinstance(head, nn.Linear)
        return head

    def train_outputs(self, image: Tensor) -> YourFLOutput:
        """All heads on ``image [B, 3, H, W]``."""
        embedding = self.neck(self.pool(self.maps(image)[-1]))
        used = self.chunk * len(self.heads)
        levels = self.levels(embedding[:, :used])
        category = self.category(embedding[:, used:]) if self.category_head else None
        return YourFLOutput(levels[-1], embedding[:, used - self.chunk : used], levels, category)

    def levels(self, embedding: Tensor) -> list[Tensor]:
        """Maps ``[B, L * chunk]`` to the logits ``[B, C_l]`` of every level, coarse to fine."""
        chunks = embedding.split(self.chunk, dim=1)
        return [
            head(torch.cat([chunks[level], *(x.detach() for x in chunks[level + 1 :])], dim=1))
            for level, head in enumerate(self.heads)
        ]


class YourFL(FGVCModule):
    """Trains :class:`YourFLNet` with the sum of one cross-entropy a level (and category).

    A level counts the images whose label there is known.
    """

    def losses(self, outputs: YourFLOutput, batch: Batch) -> Tensors:
        """``level_0`` (coarsest), ``level_1``, ... and, where there are any, ``category``."""
        terms = {
            f"level_{level}": known_cross_entropy(logits, batch["levels"][:, level], self.smoothing)
            for level, logits in enumerate(outputs.levels)
        }
        return terms | self.category_loss(outputs.category, batch)
