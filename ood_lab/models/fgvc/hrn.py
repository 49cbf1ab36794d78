"""HRN: hierarchical residual network with a loss on the label tree (arXiv 2201.03194)."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ood_lab.common.tensor_file import Batch, Tensors
from ood_lab.models.fgvc.base import FGVCModule, FGVCNet
from ood_lab.models.fgvc.label_tree import Hierarchy
from ood_lab.models.fgvc.layers import Branch, known_cross_entropy


class HRNOutput(NamedTuple):
    """``logits [B, C]``, ``features [B, D]``, and what the tree losses need.

    ``levels [B, N]`` are the logits of the sigmoid heads of all levels, side by side, coarse to
    fine; ``category [B, K]`` those of the categories, None where the data has none.
    """

    logits: Tensor
    features: Tensor
    levels: Tensor
    category: Tensor | None


class HRNNet(FGVCNet):
    """A branch per level on the last map, each level adding to what the coarser ones found.

        e_l = Branch_l(map)              l = 1 (coarsest) .. L
        h_l = ReLU(e_1 + ... + e_l)
        a_l = sigmoid(Linear_l(h_l))     [B, C_l], potentials of the label tree
        u   = Linear(h_L)                [B, C], the logits

    Predictions: classes by argmax of u, coarser levels by argmax of a_l. The category, which is
    no ancestor of the other labels, has a branch and a sigmoid head of its own.
    """

    method = "HRN"
    needs = ("levels",)

    def add_heads(self, width: int = 1024, embedding: int = 512) -> None:
        """Adds the branches and heads.

        Args:
            width: hidden channels of a branch.
            embedding: D.
        """
        space, channels = self.labels, self.channels[-1]
        self.tree = Hierarchy(space.level_sizes, space.parents)
        self.branches = nn.ModuleList(Branch(channels, width, embedding) for _ in space.level_sizes)
        self.heads = nn.ModuleList(nn.Linear(embedding, size) for size in space.level_sizes)
        self.head = nn.Linear(embedding, space.classes)
        self.level_heads = tuple(f"heads.{level}" for level in range(len(self.heads) - 1))
        if space.categories:
            self.category_tree = Hierarchy((space.categories,))
            self.category_branch = Branch(channels, width, embedding)
            self.category = nn.Linear(embedding, space.categories)
            self.category_head = "category"

    def train_outputs(self, image: Tensor) -> HRNOutput:
        """All heads on ``image [B, 3, H, W]``."""
        last = self.maps(image)[-1]
        sums = itertools.accumulate(branch(last) for branch in self.branches)
        hidden = [embedding.relu() for embedding in sums]
        levels = [head(h) for head, h in zip(self.heads, hidden, strict=True)]
        category = None
        if self.category_head:
            category = self.category(self.category_branch(last).relu())
        return HRNOutput(self.head(hidden[-1]), hidden[-1], torch.cat(levels, dim=1), category)


class HRN(FGVCModule):
    """Trains :class:`HRNNet`.

        loss = L_tree + CE(u, class) [ + L_tree of the category ]

    ``L_tree = mean -log p(y)`` for the deepest known label y, see :class:`Hierarchy`; potentials
    are the sigmoid outputs, so the loss has a floor above 0. The cross-entropy runs over the
    images whose class is known, and is skipped where there are none.

    Deviation from the released code: the category is a tree of one level of its own,
    ``p_c = exp(a_c) / (1 + sum exp(a))``, since it cannot be above labels that all categories
    share; the joint probability of both trees is the product of theirs.
    """

    backbone: HRNNet

    def losses(self, outputs: HRNOutput, batch: Batch) -> Tensors:
        """``tree``, ``ce`` and, where the data has categories, ``category``."""
        net, levels = self.backbone, batch["levels"]
        terms = {
            "tree": net.tree.loss(outputs.levels.float().sigmoid(), levels),
            "ce": known_cross_entropy(outputs.logits, levels[:, -1], self.smoothing),
        }
        if outputs.category is not None:
            potentials = outputs.category.float().sigmoid()
            terms["category"] = net.category_tree.loss(potentials, batch["category"][:, None])
        return terms
