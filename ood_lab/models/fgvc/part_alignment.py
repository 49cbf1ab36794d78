"""Brings the parts of all images into one order, by how they resemble each other.

Yang et al., Fine-Grained Object Classification via Self-Supervised Pose Alignment, CVPR 2022,
arXiv 2203.15987.
"""

from __future__ import annotations

import itertools

import torch
import torch.distributed as dist
from torch import Tensor, nn

_MOMENTUM = 0.9


class PoseMemory(nn.Module):
    """Running centres of M parts, against which the parts of an image are ordered.

    The centres and their count are buffers: they are saved, and the same in all processes.

    Args:
        parts: M; all M! orders are tried.
        width: D.
    """

    centres: Tensor
    count: Tensor

    def __init__(self, parts: int, width: int) -> None:
        super().__init__()
        self.register_buffer("centres", torch.zeros(parts, width))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def forward(self, parts: Tensor) -> Tensor:
        """The order of the parts of every image; in training the centres then move.

        ``Q_i <- (0.9 n Q_i + B mean_b P_{b, order_b(i)}) / (0.9 n + B)``, ``n <- n + B``, where B
        counts the images of all processes.

        Args:
            parts: ``P [B, M, D]``.

        Returns:
            ``[B, M]``: the part that takes each place; ``0, 1, ..., M - 1`` before any training.
        """
        # Half precision would mix up parts that are alike.
        with torch.autocast(parts.device.type, enabled=False):
            parts = parts.float()
            order = best_orders(self.centres, parts)
            if self.training:
                self._update(torch.take_along_dim(parts, order[:, :, None], dim=1))
        return order

    def _update(self, ordered: Tensor) -> None:
        total, images = ordered.sum(0), torch.full_like(self.count, len(ordered))
        if dist.is_available() and dist.is_initialized():
            dist.all_reduce(total)
            dist.all_reduce(images)
        kept = _MOMENTUM * self.count
        self.centres.copy_((kept * self.centres + total) / (kept + images))
        self.count += images


def best_orders(centres: Tensor, parts: Tensor) -> Tensor:
    """The order of parts whose similarities agree best with those of the centres.

    ``argmax_w sum_ij A_ij K_{w(i) w(j)}`` over all permutations ``w``, with ``A = Q Q^T / max`` and
    ``K = P P^T / max``; the first in lexicographic order where several are best.

    Args:
        centres: ``Q [M, D]``; all zero gives the order unchanged.
        parts: ``P [B, M, D]``.

    Returns:
        ``[B, M] int64``.
    """
    m = len(centres)
    orders = torch.tensor(list(itertools.permutations(range(m))), device=parts.device)
    similar = _similarities(parts)[:, orders[:, :, None], orders[:, None, :]]  # [B, M!, M, M]
    agreement = (similar * _similarities(centres)).sum((2, 3))
    return orders[agreement.argmax(dim=1)]


def _similarities(vectors: Tensor) -> Tensor:
    products = vectors @ vectors.mT
    largest = products.amax((-2, -1), keepdim=True)
    return products / largest.clamp(min=torch.finfo(products.dtype).tiny)
