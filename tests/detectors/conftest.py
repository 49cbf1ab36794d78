"""Blobs of ReLU features under a linear head, and OOD features in directions no class uses."""

from types import SimpleNamespace

import pytest
import torch
from network_toys import TimmNet, TinyNet

from ood_lab.features.bank import FeatureBank
from ood_lab.models.backbone import Backbone

CLASSES, WIDTH, BLOCK = 5, 32, 4


@pytest.fixture(scope="session")
def make_bank():
    """A bank whose logits are those of its linear head."""

    def make(features, labels, weight, bias) -> FeatureBank:
        logits = features @ weight.T + bias
        return FeatureBank(features, logits, labels, torch.arange(len(labels)), weight, bias)

    return make


@pytest.fixture(scope="session")
def blobs(make_bank) -> SimpleNamespace:
    generator = torch.Generator().manual_seed(0)
    centers = torch.eye(CLASSES).repeat_interleave(BLOCK, dim=1)
    centers = torch.cat([centers, torch.zeros(CLASSES, WIDTH - CLASSES * BLOCK)], dim=1)
    weight = centers - 0.2 + 0.02 * torch.randn(CLASSES, WIDTH, generator=generator)
    bias = torch.linspace(-0.5, 0.5, CLASSES)

    def noise(n):
        return 0.5 * torch.randn(n, WIDTH, generator=generator)

    def id_bank(n):
        labels = torch.arange(n) % CLASSES
        return make_bank((2 * centers[labels] + noise(n)).relu(), labels, weight, bias)

    unused = (torch.arange(WIDTH) >= CLASSES * BLOCK).float()
    ood = make_bank((0.6 * unused + noise(200)).relu(), torch.full((200,), -1), weight, bias)
    return SimpleNamespace(train=id_bank(600), val=id_bank(250), test=id_bank(200), ood=ood)


@pytest.fixture
def tiny() -> Backbone:
    torch.manual_seed(0)
    return TinyNet().eval().requires_grad_(False)


@pytest.fixture(scope="module")
def resnet() -> Backbone:
    torch.manual_seed(0)
    return TimmNet("resnet18", 64).eval().requires_grad_(False)
