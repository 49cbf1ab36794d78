"""LAID's losses: triplets of texts that share the label or the template."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import Dataset

from ood_lab.shift.text_grid import FeatureGrid

#: Distances of the start text in a half, ``[B]`` each in [0, 2]: to the text that shares its label
#: (in the semantic half) or its template, and to the one that does not.
NearAndFar = tuple[Tensor, Tensor]


def cosine_distance(a: Tensor, b: Tensor) -> Tensor:
    """``1 - a.b / (|a| |b|)`` over the last axis, in [0, 2]."""
    return 1 - F.cosine_similarity(a, b, dim=-1)


def triplet_distances(
    W: Tensor, start: Tensor, semantic_shift: Tensor, covariate_shift: Tensor
) -> tuple[NearAndFar, NearAndFar]:
    """Distances within a triplet after ``g = f W``, halves ``g[:l/2]`` and ``g[l/2:]``.

    Args:
        W: ``[l, l]``, l even.
        start: text of label a in template p, ``[B, l]``.
        semantic_shift: label b in template p.
        covariate_shift: label a in template q.
    """
    half = W.shape[1] // 2
    st, ss, cs = (features @ W for features in (start, semantic_shift, covariate_shift))
    return (
        (
            cosine_distance(st[..., :half], cs[..., :half]),
            cosine_distance(st[..., :half], ss[..., :half]),
        ),
        (
            cosine_distance(st[..., half:], ss[..., half:]),
            cosine_distance(st[..., half:], cs[..., half:]),
        ),
    )


def hinge_loss(distances: NearAndFar, margin: float) -> Tensor:
    """Mean of ``max(0, near - far + margin)``.

    The paper prints the terms without the maximum; the margin would then have no gradient.
    """
    near, far = distances
    return F.relu(near - far + margin).mean()


def orthogonality_error(W: Tensor) -> Tensor:
    """``|W^T W - I|_F^2``, the sum of squares."""
    return (W.T @ W - torch.eye(W.shape[1], dtype=W.dtype, device=W.device)).square().sum()


class Triplets(Dataset[Tensor]):
    """Batches of random triplets ``(a, p), (b, p), (a, q)`` with ``a != b`` and ``p != q``.

    An item is ``[3, batch, l] float32``: start, semantic shift, covariate shift. Items are drawn
    in the order of access; their number means nothing.

    Args:
        grid: texts of labels x templates.
        labels: rows of the grid to draw from, ``[n] int64``, at least 2.
        templates: columns to draw from, ``[m] int64``, at least 2.
        batches: length of the data set.
        batch_size: triplets in an item.
        seed: of the draws.
    """

    def __init__(
        self,
        grid: FeatureGrid,
        labels: Tensor,
        templates: Tensor,
        batches: int,
        batch_size: int,
        seed: int,
    ) -> None:
        self.grid = grid
        self.labels = labels
        self.templates = templates
        self.batches = batches
        self.batch_size = batch_size
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return self.batches

    def __getitem__(self, index: int) -> Tensor:
        if index >= self.batches:
            raise IndexError(index)
        a, b = self._two_of(self.labels)
        p, q = self._two_of(self.templates)
        texts = self.grid.features(torch.cat([a, b, a]), torch.cat([p, p, q]))
        return texts.view(3, self.batch_size, -1)

    def skip(self, epochs: int) -> None:
        """Draws what earlier epochs drew, for a training that resumes after them."""
        for _ in range(epochs * self.batches):
            self._two_of(self.labels)
            self._two_of(self.templates)

    def _two_of(self, choice: Tensor) -> tuple[Tensor, Tensor]:
        """Two entries that differ, ``[batch]`` each, uniformly."""
        n, size = len(choice), (self.batch_size,)
        first = torch.randint(n, size, generator=self.generator)
        step = torch.randint(1, n, size, generator=self.generator)
        return choice[first], choice[(first + step) % n]
