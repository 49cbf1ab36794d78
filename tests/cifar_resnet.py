"""The 20-layer CIFAR ResNet of He et al. (arXiv 1512.03385, section 4.2), option A shortcuts."""

import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, wide_in: int, wide: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(wide_in, wide, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(wide)
        self.conv2 = nn.Conv2d(wide, wide, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(wide)
        self.stride, self.padding = stride, (wide - wide_in) // 2

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.stride > 1:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.padding, self.padding))
        return F.relu(y + x)


class ResNet20(nn.Module):
    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.act1 = nn.ReLU()
        self.layer1 = nn.Sequential(*(Block(16, 16, 1) for _ in range(3)))
        self.layer2 = nn.Sequential(Block(16, 32, 2), *(Block(32, 32, 1) for _ in range(2)))
        self.layer3 = nn.Sequential(Block(32, 64, 2), *(Block(64, 64, 1) for _ in range(2)))
        self.linear = nn.Linear(64, num_classes)

    def forward(self, x):
        x = self.act1(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(x.mean((2, 3)))
