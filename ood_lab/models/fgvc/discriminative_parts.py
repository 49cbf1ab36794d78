"""Discriminative parts of an image: anchors, their scores, selection, crops, ranking loss.

Shared by NTS-Net (arXiv 1809.00287) and P2P-Net (arXiv 2203.15987).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.ops import batched_nms

from ood_lab.common.tensor_arithmetic import full_precision

# Stride of the score map, base size and scales of its anchors, in pixels of a 448-pixel image.
_LEVELS = (
    (32, 48.0, (2 ** (1 / 3), 2 ** (2 / 3))),
    (64, 96.0, (2 ** (1 / 3), 2 ** (2 / 3))),
    (128, 192.0, (1.0, 2 ** (1 / 3), 2 ** (2 / 3))),
)
_RATIOS = (0.667, 1.0, 1.5)  # width to height
_OVERLAP = 0.25  # IoU of two boxes from which on the lower-scored one is dropped


class Parts(NamedTuple):
    """``crops [B * M, 3, S, S]``, the parts of an image in a row, best first; ``scores [B, M]``."""

    crops: Tensor
    scores: Tensor


def anchor_boxes(rows: int, columns: int, scale: float = 1.0) -> Tensor:
    """The boxes that :class:`ProposalNet` scores, in the order of its scores.

    A box has its centre at the middle of a cell and sides ``h = b s / sqrt(r)``, ``w = b s
    sqrt(r)`` for the base ``b``, scale ``s`` and ratio ``r``. Corners are rounded down to whole
    pixels and may lie outside the image.

    Args:
        rows: of the map of stride 32.
        columns: of that map.
        scale: multiplies the sizes, which are made for images of 448 pixels.

    Returns:
        ``[A, 4] int64``, ``(y0, x0, y1, x1)`` in pixels, the end exclusive; ordered by level,
        scale, ratio, row, column.
    """
    boxes = []
    for stride, base, scales in _LEVELS:
        step = stride // 32
        y = stride / 2 + stride * torch.arange(math.ceil(rows / step))
        x = stride / 2 + stride * torch.arange(math.ceil(columns / step))
        y, x = torch.meshgrid(y, x, indexing="ij")
        for size in scales:
            for ratio in _RATIOS:
                h = scale * base * size / math.sqrt(ratio)
                w = scale * base * size * math.sqrt(ratio)
                box = torch.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], dim=-1)
                boxes.append(box.flatten(0, 1))
    return torch.cat(boxes).floor().long()


def select(boxes: Tensor, scores: Tensor, count: int) -> Tensor:
    """The best boxes of every image after greedy suppression of those that overlap a better one.

    Where fewer than ``count`` survive, the best of the suppressed ones follow.

    Args:
        boxes: ``[A, 4]``, the same for all images.
        scores: ``[B, A]``.
        count: M, at most A.

    Returns:
        Indices into ``boxes``, ``[B, M]``, by falling score.
    """
    scores = scores.detach().float()
    images, anchors = scores.shape
    group = torch.arange(images, device=scores.device).repeat_interleave(anchors)
    kept = batched_nms(boxes.float().repeat(images, 1), scores.flatten(), group, _OVERLAP)
    suppressed = torch.ones(images * anchors, dtype=torch.uint8, device=scores.device)
    suppressed[kept] = 0
    order = scores.argsort(dim=1, descending=True, stable=True)
    suppressed = suppressed.view_as(scores).gather(1, order)
    return order.gather(1, suppressed.argsort(dim=1, stable=True))[:, :count]


@torch.no_grad()
def crop(image: Tensor, boxes: Tensor, size: int) -> Tensor:
    """Cuts out boxes and resizes them, black (0) where they leave the image.

    Corners meet corners (``align_corners=True``): the first and the last pixel of a side are
    those at ``y0`` and ``y1 - 1``.

    Args:
        image: ``[B, 3, H, W]``.
        boxes: ``[B, M, 4]``, ``(y0, x0, y1, x1)`` in pixels, the end exclusive.
        size: S, side of the result in pixels.

    Returns:
        ``[B * M, 3, S, S]`` in the dtype of ``image``, without gradient.
    """
    (b, channels, height, width), m = image.shape, boxes.shape[1]
    start, last = boxes[..., :2].float(), boxes[..., 2:].float() - 1
    way = torch.linspace(0, 1, size, device=image.device)
    # One pixel to the right is 2 / (W - 1) in the coordinates of grid_sample.
    unit = 2 / (torch.tensor([height, width], device=image.device) - 1).clamp(min=1)
    points = (start[..., None, :] + (last - start)[..., None, :] * way[:, None]) * unit - 1
    y, x = points.unbind(-1)  # [B, M, S]
    grid = torch.stack([x[:, :, None, :].expand(-1, -1, size, -1),
                        y[:, :, :, None].expand(-1, -1, -1, size)], dim=-1)  # fmt: skip
    # All boxes of an image one below the other: the image itself is not repeated.
    cut = F.grid_sample(image.float(), grid.flatten(1, 2), align_corners=True)
    cut = cut.view(b, channels, m, size, size).transpose(1, 2).flatten(0, 1)
    return cut.to(image.dtype)


def rank_loss(scores: Tensor, losses: Tensor) -> Tensor:
    """Asks that a part with a smaller loss has a larger score.

    ``1/B sum_b sum_ij [t_bj > t_bi] max(0, 1 - s_bi + s_bj)``; no gradient reaches ``t``.

    Args:
        scores: ``s [B, M]``.
        losses: ``t [B, M]``, classification losses of the parts.
    """
    scores = scores.float()
    misplaced = (1 - scores[:, :, None] + scores[:, None, :]).relu()
    counts = losses[:, None, :] > losses[:, :, None]
    return (misplaced * counts).sum((1, 2)).mean()


class ProposalNet(nn.Module):
    """Scores of all anchors from the last map of the trunk, at strides 32, 64 and 128.

    Args:
        channels: of the map of stride 32.
        hidden: channels inside.
    """

    def __init__(self, channels: int, hidden: int = 128) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            nn.Conv2d(inputs, hidden, 3, stride=step, padding=1)
            for inputs, step in ((channels, 1), (hidden, 2), (hidden, 2))
        )
        self.score = nn.ModuleList(
            nn.Conv2d(hidden, len(scales) * len(_RATIOS), 1) for _, _, scales in _LEVELS
        )

    def forward(self, top: Tensor) -> Tensor:
        """Maps ``top [B, channels, h, w]`` to scores ``[B, A]`` in the order of the anchors."""
        scores = []
        # In float32: on maps smaller than the kernel, bfloat16 weight gradients on CPUs were
        # seen to hold uninitialised memory (NaN, once in many runs).
        with full_precision(top):
            top = top.float()
            for down, score in zip(self.down, self.score, strict=True):
                top = down(top).relu()
                scores.append(score(top).flatten(1))
        return torch.cat(scores, dim=1)


class PartProposals(nn.Module):
    """Finds and cuts out the most telling parts of an image.

    Args:
        channels: of the map of stride 32.
        count: M, parts per image.
        size: side of a crop in pixels.
        anchor_scale: size of the parts; 1 is meant for images of 448 pixels.
    """

    def __init__(self, channels: int, count: int, size: int, anchor_scale: float) -> None:
        super().__init__()
        self.net = ProposalNet(channels)
        self.count = count
        self.size = size
        self.anchor_scale = anchor_scale

    def forward(self, image: Tensor, top: Tensor, count: int | None = None) -> Parts:
        """The best ``count`` (or M) parts of ``image [B, 3, H, W]`` by its last map ``top``.

        Neither the map nor the crops pass a gradient on; the scores train only the proposals.
        """
        scores = self.net(top.detach())
        rows, columns = top.shape[-2:]
        boxes = anchor_boxes(rows, columns, self.anchor_scale).to(image.device)
        chosen = select(boxes, scores, count or self.count)
        return Parts(crop(image, boxes[chosen], self.size), scores.gather(1, chosen))
