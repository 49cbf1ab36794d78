"""A tiny network, synthetic images and two columns, all picklable for the process launchers."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Sequence

import lightning
import pandas as pd
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from ood_lab.features.bank_identity import NetworkIdentity
from ood_lab.features.extraction_hooks import BankColumn, GradientColumn
from ood_lab.models.backbone import Backbone
from ood_lab.models.output import Output

warnings.filterwarnings("ignore", message=".*LeafSpec.*")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

PRIME = 23
#: For tests that count passes: none is made to identify the network.
COUNTED = {"network": NetworkIdentity("weights", "parts", complete=True)}


class TinyBackbone(Backbone):
    """Convolution, batch norm, ReLU, pooling, head; counts its forward passes."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.conv = nn.Conv2d(3, 6, 3)
        self.norm = nn.BatchNorm2d(6)
        self.norm.running_mean = torch.randn(6)
        self.head = nn.Linear(6, 4)
        self.data_config = {"std": (1.0, 1.0, 1.0), "input_size": (3, 8, 8)}
        self.forwards = 0

    def forward(self, image: Tensor) -> Output:
        self.forwards += 1
        features = self.norm(self.conv(image)).relu().mean((2, 3))
        return Output(self.head(features), features)


class TinyImages(Dataset):
    """Random images; row ``bad`` is NaN; the process is killed when it reads row ``fatal``."""

    def __init__(self, n: int = PRIME, name: str = "test", identity: str = "a") -> None:
        self.name, self.identity, self.transform = name, identity, "Normalize(0.5)"
        self.images = torch.randn(n, 3, 8, 8, generator=torch.Generator().manual_seed(1))
        self.table = pd.DataFrame(
            {"path": [f"image_{i}.png" for i in range(n)], "label": [i % 4 for i in range(n)]}
        )
        self.fatal: int | None = None
        self.groups = None

    def address(self, row: int) -> str:
        return str(self.table["path"].iat[row])

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict:
        if index == self.fatal:
            os.kill(os.getpid(), 9)
        label = int(self.table["label"][index])
        return {"image": self.images[index], "index": index, "label": label, "category": 0}


class MapPower(BankColumn):
    """Mean of a power of the convolution's maps, ``[B, 6]``."""

    def __init__(self, power: int = 2) -> None:
        self.power, self.key = power, f"map-power(power={power})"

    def layers(self, backbone: Backbone) -> list[str]:
        return ["conv"]

    def compute(
        self, backbone: Backbone, image: Tensor, output: Output, maps: dict[str, Tensor]
    ) -> Tensor:
        assert not output.logits.requires_grad
        assert not maps["conv"].requires_grad
        return maps["conv"].pow(self.power).mean((2, 3))


class GradientStep(GradientColumn):
    """Top logit after a step along the input gradient, ``[B]``: runs the network again."""

    def __init__(self, step: float = 1.0) -> None:
        self.step, self.key = step, f"gradient-step/{step}"

    def of_gradient(
        self,
        backbone: Backbone,
        image: Tensor,
        output: Output,
        maps: dict[str, Tensor],
        gradient: Sequence[Tensor],
    ) -> Tensor:
        return backbone(image + self.step * gradient[0]).logits.amax(1)


def make_trainer(**settings: object) -> lightning.Trainer:
    defaults = {
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
    }
    return lightning.Trainer(**{**defaults, **settings})
