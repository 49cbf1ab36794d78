"""Small networks, and the extraction pass over them in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import timm
import torch
from torch import Tensor, nn

from ood_lab.features.bank import FeatureBank
from ood_lab.features.extraction_hooks import BankColumn
from ood_lab.features.lightning_extractor import Extractor, frozen
from ood_lab.models.backbone import Backbone
from ood_lab.models.output import Output

STD = [0.2, 0.25, 0.3]


class TinyNet(Backbone):
    """Stem and two stages of 8 → 4 positions, spatial mean, linear head."""

    def __init__(self, size: int = 8):
        super().__init__()
        self.data_config = {"input_size": (3, size, size), "std": STD}
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.early = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU())
        self.late = nn.Sequential(nn.Conv2d(6, 9, 3, stride=2, padding=1), nn.ReLU())
        self.head = nn.Linear(9, 4)

    def forward(self, image: Tensor) -> Output:
        features = self.late(self.early(self.stem(image))).mean(dim=(2, 3))
        return Output(self.head(features), features)


class TimmNet(Backbone):
    def __init__(self, name: str, size: int, **options):
        super().__init__()
        self.net = timm.create_model(name, pretrained=False, num_classes=5, **options)
        self.data_config = {"input_size": (3, size, size), "std": STD}
        self.head = self.net.get_classifier()

    def forward(self, image: Tensor) -> Output:
        features = self.net.forward_head(self.net.forward_features(image), pre_logits=True)
        return Output(self.head(features), features)


def extract(backbone: Backbone, images: Tensor, *detectors, batch_size: int = 64) -> FeatureBank:
    """The extraction pass, in memory."""
    return extract_columns(backbone, images, [d.extraction_hook for d in detectors], batch_size)


def extract_columns(
    backbone: Backbone, images: Tensor, chosen: Sequence[BankColumn], batch_size: int = 64
) -> FeatureBank:
    """The pass that computes the chosen columns."""
    extractor = Extractor(backbone, chosen)
    rows, n = torch.arange(len(images)), len(images)
    with frozen(backbone), torch.no_grad():
        extractor.on_predict_start()
        parts = [
            extractor.predict_step({"image": image.clone(), "index": index, "label": index}, 0)
            for image, index in zip(images.split(batch_size), rows.split(batch_size), strict=True)
        ]
        extractor.close()
    features, logits = (torch.cat([part[key] for part in parts]) for key in ("features", "logits"))
    columns = {k: torch.cat([part["columns"][k] for part in parts]) for k in parts[0]["columns"]}
    head = backbone.head
    return FeatureBank(
        features, logits, torch.full((n,), -1), rows, head.weight.data, head.bias.data, columns
    )


def noise(n: int, size: int = 8, seed: int = 1) -> Tensor:
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(seed))


def labelled(bank: FeatureBank, labels: Tensor) -> FeatureBank:
    return replace(bank, labels=labels)
