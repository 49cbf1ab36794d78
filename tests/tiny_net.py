"""A small network with weights of its own: as a class, in a hubconf.py."""

from pathlib import Path

import torch
from torch import nn

#: A hubconf.py that offers it without its head.
HUBCONF = """
dependencies = ["torch"]
import torch
from tiny_net import TinyNet


def features():
    net = TinyNet()
    net.fc = torch.nn.Identity()
    return net

"""


class TinyNet(nn.Module):
    """A convolution, its mean, a linear layer; the same weights every time."""

    def __init__(self, num_classes: int = 3) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            self.conv = nn.Conv2d(3, 8, 3, stride=2)
            self.fc = nn.Linear(8, num_classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.relu(self.conv(image)).mean((2, 3)))


class DropoutNet(TinyNet):
    """Drops features at random in evaluation, too."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        features = torch.relu(self.conv(image)).mean((2, 3))
        return self.fc(nn.functional.dropout(features, 0.5))


def write_hub(folder: Path) -> Path:
    """A repository of torch.hub."""
    folder.mkdir()
    (folder / "hubconf.py").write_text(HUBCONF)
    return folder


def bare() -> nn.Module:
    """The network without its head."""
    net = TinyNet()
    net.fc = nn.Identity()
    return net
