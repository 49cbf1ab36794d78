"""Networks whose logits depend on chance or on other images are found; ordinary ones pass."""

import copy
import random

import numpy as np
import pytest
import timm
import torch
import torch.nn.functional as F
from torch import nn

from ood_lab.common.errors import UserError
from ood_lab.models import WrappedBackbone, check_determinism
from ood_lab.models.loading.head_search import reading_of
from ood_lab.models.trial_passes import random_batch


class Net(nn.Module):
    def __init__(self, change=lambda net, features: features):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, stride=2)
        self.norm = nn.BatchNorm2d(16)
        self.fc = nn.Linear(16, 3)
        self.change = change

    def features(self, image):
        return torch.relu(self.norm(self.conv(image))).mean((2, 3))

    def forward(self, image):
        return self.fc(self.change(self, self.features(image)))


class Before(Net):
    """Changes the image instead of the features."""

    def forward(self, image):
        return self.fc(self.features(self.change(self, image)))


def shifted(net, image):
    start = random.randint(0, 8)
    return image[..., start : start + 16]


def trains(net, image):
    net.train()
    return image


def without_statistics():
    net = Net()
    net.norm = nn.BatchNorm2d(16, track_running_stats=False)
    return net


def zero_head():
    net = Net(lambda net, x: F.dropout(x, 0.5))
    nn.init.zeros_(net.fc.weight)
    nn.init.zeros_(net.fc.bias)
    return net


def backbone_of(net, head="fc", size=(3, 32, 32)):
    backbone = WrappedBackbone(net.eval(), head)
    backbone.data_config = {"input_size": size}
    return backbone


RANDOM = {
    "dropout": (lambda: Net(lambda net, x: F.dropout(x, 0.5)), "runs twice.*input differs is 'fc'"),
    "bfloat16": (lambda: Net(lambda net, x: F.dropout(x, 0.5)).bfloat16(), "twice.* is 'fc'"),
    "crop": (lambda: Before(shifted), r"runs twice.*input differs is 'conv' \(Conv2d\)"),
    "seldom": (lambda: Before(lambda net, x: x.flip(2) if torch.rand(()) < 0.4 else x), "twice"),
    "numpy": (lambda: Before(lambda net, x: x + float(np.random.randn())), "runs twice"),
    "zero head": (zero_head, "a feature moves by"),
    "largest": (lambda: Net(lambda net, x: x / x.max()), "other images.*input differs is 'fc'"),
    "mean": (lambda: Net(lambda net, x: x - x.mean(0)), "depend on the other images of the batch"),
    "order": (lambda: Net(lambda net, x: x * torch.arange(1.0, len(x) + 1)[:, None]), "other imag"),
    "norm": (without_statistics, r"output differs is 'norm' \(BatchNorm2d\)"),
    "train": (lambda: Before(trains), r"output differs is 'norm' \(BatchNorm2d\)"),
    "squeeze": (lambda: Net(lambda net, x: x.squeeze()), "cannot process an image by itself"),
}


@pytest.mark.parametrize("name", RANDOM)
def test_what_is_no_function_of_one_image_is_found(name, caplog):
    torch.manual_seed(0)
    make, says = RANDOM[name]
    net = make()
    backbone = backbone_of(net)
    before, modes = copy.deepcopy(net.state_dict()), [part.training for part in net.modules()]
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[2]
    with pytest.raises(UserError, match=says) as refusal:
        check_determinism(backbone)
    assert "model.allow_random=true" in str(refusal.value)
    warning = check_determinism(backbone, allow_random=True)
    assert warning in caplog.text
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1:] == (random.getstate(), np.random.get_state()[2])
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    assert [part.training for part in net.modules()] == modes


def test_numbers_that_are_drawn_and_not_used_do_no_harm():
    assert check_determinism(backbone_of(Net(lambda net, x: (torch.rand(2), x)[1]))) is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_all_precisions_pass(dtype):
    torch.manual_seed(0)
    assert check_determinism(backbone_of(Net().to(dtype))) is None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of PyTorch, that this kind of quantisation moves
def test_quantised_and_compiled_networks_pass():
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Flatten(), nn.Linear(3072, 64), nn.ReLU(), nn.Linear(64, 64))
    quantised = torch.ao.quantization.quantize_dynamic(layers, {nn.Linear}, dtype=torch.qint8)
    assert check_determinism(backbone_of(nn.Sequential(quantised, nn.Linear(64, 3)), "1")) is None
    net = Net()
    net.conv = torch.compile(net.conv)
    assert check_determinism(backbone_of(net)) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["resnet18", "mobilenetv3_small_050", "convnext_atto", "vit_tiny_patch16_224",
     "xcit_nano_12_p16_224", "swin_tiny_patch4_window7_224", "nf_regnet_b0", "edgenext_xx_small"],
)  # fmt: skip
def test_ordinary_networks_pass(name):
    torch.manual_seed(0)
    fixed = name in ("vit_tiny_patch16_224", "xcit_nano_12_p16_224", "swin_tiny_patch4_window7_224")
    side = 224 if fixed else 64
    net = timm.create_model(name, num_classes=5)
    head = reading_of(net, random_batch(net, (3, side, side)), name).names[-1]
    assert check_determinism(backbone_of(net, head, (3, side, side))) is None
