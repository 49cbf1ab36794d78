"""The network of OpenOOD's CIFAR checkpoints (arXiv 2306.09301), under the names of its tensors."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

#: Output channels of the stem and of the four stages; all but the first stage halve the map.
WIDTHS = (64, 64, 128, 256, 512)
BLOCKS = 2


class ResNet18For32(nn.Module):
    """ResNet-18 for images of 32 pixels: a 3 × 3 stem without pooling, four stages, one head.

    It differs from the ResNet-18 of timm and torchvision in its stem, and in the name of the
    shortcuts; ``ResNet18_32x32`` of OpenOOD v1.5 has the same tensors.

    Args:
        num_classes: outputs of the head ``fc``.
    """

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, WIDTHS[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        stages = [_stage(a, b, 1 if n == 0 else 2) for n, (a, b) in enumerate(pairwise(WIDTHS))]
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(WIDTHS[-1], num_classes)

    def forward(self, image: Tensor) -> Tensor:
        """Maps ``[B, 3, H, W]`` to logits ``[B, C]``."""
        maps = torch.relu(self.bn1(self.conv1(image)))
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            maps = stage(maps)
        logits: Tensor = self.fc(self.avgpool(maps).flatten(1))
        return logits


class _Block(nn.Module):
    """Two 3 × 3 convolutions and a shortcut, which is a 1 × 1 convolution where shapes differ."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        projection = [nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width)]
        self.shortcut = nn.Sequential(*projection if stride > 1 or channels != width else [])

    def forward(self, maps: Tensor) -> Tensor:
        inner = torch.relu(self.bn1(self.conv1(maps)))
        return torch.relu(self.bn2(self.conv2(inner)) + self.shortcut(maps))


def _stage(channels: int, width: int, stride: int) -> nn.Sequential:
    first = _Block(channels, width, stride)
    return nn.Sequential(first, *(_Block(width, width, 1) for _ in range(BLOCKS - 1)))
