"""Real images and weights: a network whose head is hidden gives the numbers of the linear head.

Skips where the data, which is not a part of the project, is absent.
"""

import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from cifar_resnet import ResNet20
from PIL import Image
from test_reads import column
from torch import nn
from torch.nn import functional as F

import ood_lab
from ood_lab.models.head_kind import HeadKind

SHARED = Path(__file__).parents[3] / "shared" / "data"
ARCHIVE = SHARED / "cifar10_imagenet32.tar.gz"
NEED_A_HEAD = {name for name, cell in column(HeadKind.BLACK_BOX).items() if cell != "✓"}
SIZES = {"id/train": 1000, "id/val": 300, "id/test": 200, "ood/imagenet32": 150}
MEAN, STD = (torch.tensor(v).view(3, 1, 1) for v in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ARCHIVE.exists(), reason="no ../shared/data beside the checkout"),
]


class Hidden(nn.Module):
    """The same function without a linear layer in it."""

    def __init__(self, net):
        super().__init__()
        self.net, self.weight, self.bias = net, net.linear.weight, net.linear.bias
        net.linear = nn.Identity()

    def forward(self, image):
        return F.linear(self.net(image), self.weight, self.bias)


def resnet20():
    net = ResNet20()
    net.load_state_dict(torch.load(SHARED / "resnet20_cifar10.pt", weights_only=True))
    return net.eval()


@pytest.fixture(scope="module")
def sets():
    """Images and labels of each set, the first of every class in turn."""
    with tarfile.open(ARCHIVE) as archive:
        members = [m for m in archive.getmembers() if m.isfile()]
        found = {}
        for name, n in SIZES.items():
            inside = sorted(m.name for m in members if f"{name}/" in m.name)
            chosen = inside[:: max(1, len(inside) // n)][:n]
            folders = sorted({Path(path).parent.name for path in inside})
            images = [np.array(Image.open(archive.extractfile(path))) for path in chosen]
            labels = [folders.index(Path(path).parent.name) for path in chosen]
            pixels = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2) / 255
            found[name] = (pixels - MEAN) / STD, torch.tensor(labels)
        return found


def test_a_black_box_has_the_numbers_of_the_linear_head(sets):
    every, scores = column(HeadKind.LINEAR), {}
    for kind, net in ((HeadKind.LINEAR, resnet20()), (HeadKind.BLACK_BOX, Hidden(resnet20()))):
        reads = [n for n in every if n not in NEED_A_HEAD or kind == HeadKind.LINEAR]
        banks = [
            ood_lab.extract_features(
                net,
                x,
                y if name.startswith("id") else None,
                detectors=reads,
                std=STD.flatten().tolist(),
            )
            for name, (x, y) in sets.items()
        ]
        assert banks[0].kind == kind
        given = dict(zip(("train", "val", "test"), banks, strict=False))
        scores[kind] = ood_lab.evaluate(
            **given, ood={"far": banks[3]}, detectors="all", n_bootstrap=10
        )
    linear, black = scores[HeadKind.LINEAR], scores[HeadKind.BLACK_BOX]
    assert float((banks[2].predictions == banks[2].labels).double().mean()) > 0.8
    assert not linear.skipped
    assert set(black.skipped) == NEED_A_HEAD
    # Residual begins at the origin of a linear head, at the mean without one.
    for name in sorted(set(black.detectors) - {"residual"}):
        ours, theirs = (found.scores[name].to_numpy() for found in (black, linear))
        np.testing.assert_allclose(
            ours, theirs, rtol=1e-4, atol=1e-5 * np.abs(theirs).max(), err_msg=name
        )
