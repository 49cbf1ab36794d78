"""Label sets of a fine-grained method, and probabilities of the nodes of their tree."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from ood_lab.common.errors import UserError
from ood_lab.models.fgvc.layers import UNKNOWN, known_mean, picked
from ood_lab.schema.label_space import LabelSpace

#: What a method may ask for, and how the user provides it.
REMEDIES = {
    "levels": "a hierarchy of the classes (data.hierarchy=FILE, or columns level_0, level_1, ...)",
    "shapes": "a shape of every training image (column shape)",
    "attributes": "characteristics of the training images (columns attribute_<name>)",
}


def require(labels: LabelSpace, method: str, needs: Iterable[str]) -> None:
    """Checks that the data has what a method needs.

    Raises:
        UserError: names the method and what is missing.
    """
    has = {"levels": labels.parents, "shapes": labels.shapes, "attributes": labels.attributes}
    missing = [REMEDIES[need] for need in needs if not has[need]]
    if missing:
        raise UserError(
            f"{method} needs {' and '.join(missing)}, and the data has none: "
            "provide it, or choose nts, sps or p2p, which need only classes"
        )


class Hierarchy:
    """A forest of labels, one level below the other, as a model of joint probability.

    Nodes are numbered level by level, coarsest first. A legal state is empty, or a node together
    with all its ancestors: a child implies its parent, siblings exclude each other, and a path may
    stop early. With a potential ``a_v`` at every node,

        P(state) = exp(sum of a_v over the state) / Z,    Z = sum over all N + 1 states,

    and ``p(v)`` is the sum of P over the states that contain v, those of v's subtree. Instead of
    the ``(N + 1) x N`` matrix of states, sums run down and up the levels, in O(N) an image.

    Source: Deng et al., "Large-Scale Object Classification using Label Relation Graphs", ECCV 2014
    (HEX graphs, here on a tree); Chen et al., "Label Relation Graphs Enhanced Hierarchical
    Residual Network", arXiv 2201.03194.

    Args:
        level_sizes: number of labels at each level, coarse to fine.
        parents: for every level but the coarsest, the parent of each label.

    Attributes:
        offsets: number of the first node of each level.
        nodes: number of nodes N.
    """

    def __init__(self, level_sizes: Sequence[int], parents: Sequence[Sequence[int]] = ()) -> None:
        self.level_sizes = tuple(level_sizes)
        *self.offsets, self.nodes = itertools.accumulate(self.level_sizes, initial=0)
        # Not buffers of a module: moving averages of weights average whole numbers, too, and
        # round them down.
        self._parents = [torch.tensor(list(above), dtype=torch.long) for above in parents]

    def deepest(self, levels: Tensor) -> Tensor:
        """The node of the finest known label of each row.

        Args:
            levels: ``[B, L]`` labels coarse to fine, -1 = unknown.

        Returns:
            ``[B]`` node numbers, -1 where no level is known.
        """
        node = torch.full_like(levels[:, 0], UNKNOWN)
        for level, offset in enumerate(self.offsets):
            label = levels[:, level]
            node = torch.where(label == UNKNOWN, node, label + offset)
        return node

    def log_marginals(self, potentials: Tensor) -> tuple[Tensor, Tensor]:
        """Log probabilities of the nodes, log of the normaliser; in float32 or better, always.

        Args:
            potentials: a, ``[B, N]``, any real numbers.

        Returns:
            ``log p [B, N]`` and ``log Z [B]``.
        """
        potentials = potentials.to(torch.promote_types(potentials.dtype, torch.float32))
        self._parents = [parents.to(potentials.device) for parents in self._parents]
        paths = self._path_sums(potentials)
        # Shifted by the largest, so that no exponential overflows; the empty state has sum 0.
        shift = torch.cat(paths, dim=1).detach().amax(1, keepdim=True).clamp(min=0)
        mass = [(path - shift).exp() for path in paths]
        for level in range(len(mass) - 1, 0, -1):
            mass[level - 1] = mass[level - 1].index_add(1, self._parents[level - 1], mass[level])
        total = mass[0].sum(1, keepdim=True) + (-shift).exp()
        # A state far below the largest may vanish in float32; its log stays finite.
        tiny = torch.finfo(total.dtype).tiny
        log_mass = torch.cat(mass, dim=1).clamp(min=tiny).log()
        return log_mass - total.log(), (total.log() + shift).squeeze(1)

    def loss(self, potentials: Tensor, levels: Tensor) -> Tensor:
        """``-log p`` of the deepest known node, averaged over the images that have one.

        Args:
            potentials: ``[B, N]``.
            levels: ``[B, L]`` labels coarse to fine, -1 = unknown.

        Returns:
            A scalar; 0, with a gradient of 0, where nothing is known.
        """
        node = self.deepest(levels)
        labelled = node != UNKNOWN
        return -known_mean(picked(self.log_marginals(potentials)[0], node), labelled)

    def _path_sums(self, potentials: Tensor) -> list[Tensor]:
        """Sum of the potentials from the root to each node, a tensor per level."""
        by_level = potentials.split(self.level_sizes, dim=1)
        paths = [by_level[0]]
        for level in range(1, len(by_level)):
            paths.append(by_level[level] + paths[-1][:, self._parents[level - 1]])
        return paths
