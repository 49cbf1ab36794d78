"""Layers and the loss that several fine-grained methods share."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

UNKNOWN = -1


class BasicConv(nn.Sequential):
    """Convolution without bias, batch norm, ReLU; ``[B, I, H, W] -> [B, O, H, W]``.

    Args:
        in_channels: I.
        out_channels: O.
        kernel_size: odd; the padding keeps the size of the map.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int) -> None:
        super().__init__(
            nn.Conv2d(in_channels, out_channels, kernel_size, padding=kernel_size // 2, bias=False),
            nn.BatchNorm2d(out_channels, momentum=0.01),
            nn.ReLU(inplace=True),
        )


def elu_mlp(in_features: int, out_features: int) -> nn.Sequential:
    """Batch norm, linear layer, batch norm, ELU; ``[B, I] -> [B, O]``."""
    return nn.Sequential(
        nn.BatchNorm1d(in_features),
        nn.Linear(in_features, out_features),
        nn.BatchNorm1d(out_features),
        nn.ELU(inplace=True),
    )


class Branch(nn.Sequential):
    """Two convolutions on the last map of the trunk, pooled and projected.

    ``[B, I, H, W] -> e [B, D]``, not activated. Batch norm needs two images or more in training.

    Args:
        channels: I.
        width: channels of the 1 x 1 convolution, and size of the hidden layer.
        features: D.
    """

    def __init__(self, channels: int, width: int, features: int) -> None:
        super().__init__(
            BasicConv(channels, width, 1),
            BasicConv(width, channels, 3),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            elu_mlp(channels, width),
            nn.Linear(width, features),
        )


def picked(values: Tensor, index: Tensor) -> Tensor:
    """``[B]``: of each row of values ``[B, N]``, that of its index; the first of an unknown one."""
    return values.gather(1, index.clamp(min=0)[:, None]).squeeze(1)


def known_mean(values: Tensor, known: Tensor) -> Tensor:
    """The mean of values ``[B]`` over the known ones; 0, with a gradient of 0, without any."""
    return (values * known).sum() / known.sum().clamp(min=1)


def known_cross_entropy(logits: Tensor, target: Tensor, smoothing: float) -> Tensor:
    """Cross-entropy averaged over the samples whose target is known.

    Args:
        logits: ``[B, C]``.
        target: ``[B]``, -1 = unknown.
        smoothing: share of the target spread over all classes.

    Returns:
        A scalar; 0, with a gradient of 0, where no target is known.
    """
    total = F.cross_entropy(
        logits.float(), target, ignore_index=UNKNOWN, reduction="sum", label_smoothing=smoothing
    )
    return total / (target != UNKNOWN).sum().clamp(min=1)
