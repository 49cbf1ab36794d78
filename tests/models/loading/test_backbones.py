"""The backbone contract, for timm models by name and for any module."""

import copy
import pickle

import pytest
import torch
from huggingface_hub import constants
from PIL import Image
from torch import nn
from torchvision.transforms import CenterCrop

from ood_lab.common.errors import UserError
from ood_lab.models import check_contract, module_backbone, timm_backbone, train_transform
from ood_lab.models.loading.wrapped_network import WrappedBackbone

SMALL = {"layers": (1, 1, 1, 1), "channels": (8, 16, 24, 32)}


def small_resnet(**options):
    return timm_backbone("resnet18", 5, input_size=32, kwargs=SMALL, **options)


class TinyNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, stride=4)
        self.norm = nn.BatchNorm2d(6)
        self.drop = nn.Dropout(0.5)
        self.neck = nn.Linear(6, 8)
        self.linear = nn.Linear(8, classes)

    def features(self, x):
        x = self.norm(self.stem(x)).mean((2, 3))
        return self.drop(torch.relu(self.neck(x)))

    def forward(self, x):
        return self.linear(self.features(x))


@pytest.mark.parametrize(
    ("name", "size", "kwargs"),
    [
        ("resnet18", 32, SMALL),
        ("vit_tiny_patch16_224", 32, {"img_size": 32, "depth": 2}),
        ("mobilenetv3_small_050", 64, {}),  # num_features is not the input of its head
        ("efficientnet_b0", 32, {}),
        ("convnext_atto", 32, {"depths": (1, 1, 1, 1)}),
        (
            "swin_tiny_patch4_window7_224",
            56,
            {"img_size": 56, "depths": (1, 1), "num_heads": (3, 6)},
        ),
    ],
)
def test_timm_models_keep_the_contract(name, size, kwargs):
    backbone = timm_backbone(name, 7, input_size=size, kwargs=kwargs)
    assert backbone.training
    image = torch.randn(3, 3, size, size)
    backbone.eval()
    with torch.no_grad():
        logits, features = backbone(image)
        direct = backbone.net(image)
        pooled = backbone.net.forward_head(backbone.net.forward_features(image), pre_logits=True)
    assert logits.shape == (3, 7)
    torch.testing.assert_close(logits, direct, rtol=0, atol=0)
    torch.testing.assert_close(features, pooled)
    torch.testing.assert_close(features @ backbone.head.weight.T + backbone.head.bias, logits)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"name": "resnt18"}, "resnet18"),
        ({"name": "resnet18.a1_in2k"}, "resnet18.a1_in1k"),
        ({"name": "resnet18", "kwargs": {"depth": 3}}, "depth"),
        ({"name": "resnet18", "num_classes": 0}, "num_classes"),
        ({"name": "vit_tiny_patch16_224", "input_size": 32}, "[2, 3, 32, 32]"),
        ({"name": "resnet18", "crop_mode": "centre"}, "give 'center', 'squash' or 'border'"),
        ({"name": "resnet18", "mean": [0.5]}, "mean"),
        ({"name": "resnet18", "pretrained": True, "weights": "x.pt"}, "exclude"),
    ],
)
def test_wrong_settings_end_in_one_line(arguments, says):
    with pytest.raises(UserError) as refusal:
        timm_backbone(**arguments)
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_without_network_the_remedy_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UserError, match=r"resnet18.*weights=FILE"):
        timm_backbone("resnet18", pretrained=True)


def test_a_hub_that_is_not_there_is_asked_once(monkeypatch, tmp_path):
    asked = []

    class Session:
        def head(self, url, timeout):
            asked.append(url)
            raise ConnectionError("Name or service not known")

    monkeypatch.setattr("ood_lab.models.loading.hub_models.get_session", Session)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with pytest.raises(UserError, match=r"resnet18 are not in the cache and cannot be downloaded"):
        timm_backbone("resnet18", pretrained=True)
    assert len(asked) == 1
    assert not constants.HF_HUB_OFFLINE  # as it was


def test_a_file_says_how_many_classes_it_has(tmp_path):
    """Not as many as timm's own weights; which is what an evaluation without ckpt= builds."""
    saved = small_resnet()
    torch.save({"model": saved.net.state_dict()}, tmp_path / "w.pt")
    options = {"weights": tmp_path / "w.pt", "kwargs": SMALL}
    read = timm_backbone("resnet18", **options)
    assert read.head.out_features == 5
    torch.testing.assert_close(read.head.weight, saved.head.weight)
    with pytest.raises(UserError, match="for 5 classes instead of 3"):
        timm_backbone("resnet18", 3, **options)


SIZES = {
    "nothing is known": ({}, 224, 0.875),
    "all images are alike": ({"image_size": (32, 32)}, 32, 1.0),
    "all photographs are alike": ({"image_size": (4000, 3000)}, 224, 0.875),
    "it is stated": ({"image_size": (32, 32), "input_size": 48}, 48, 1.0),
    "a checkpoint states it": (
        {"image_size": (32, 32), "data_config": {"input_size": (3, 64, 64), "crop_pct": 0.9}},
        64,
        0.9,
    ),
}


@pytest.mark.parametrize("case", SIZES)
def test_the_size_of_a_network_that_does_not_say_it(case, caplog):
    options, size, crop_pct = SIZES[case]
    backbone = module_backbone(TinyNet(), "linear", **options)
    assert backbone.data_config["input_size"] == (3, size, size)
    assert backbone.data_config["crop_pct"] == crop_pct
    origin = "that of all images" if size == 32 else "as for ImageNet"
    assert (f"input_size={size} × {size} ({origin})" in caplog.text) == (size in (32, 224))


def test_images_that_are_no_squares():
    backbone = module_backbone(TinyNet(), "linear", image_size=(56, 48))
    assert backbone.transform(Image.new("RGB", (56, 48))).shape == (3, 48, 56)


def test_a_size_against_the_checkpoint_is_refused():
    data_config = {"input_size": (3, 64, 64)}
    for build in (
        lambda **options: module_backbone(TinyNet(), "linear", **options),
        lambda **options: timm_backbone("resnet18", 5, kwargs=SMALL, **options),
    ):
        assert build(data_config=data_config).data_config["input_size"] == (3, 64, 64)
        with pytest.raises(UserError, match="allow_transform_mismatch=true"):
            build(data_config=data_config, input_size=32)


def test_transform_is_that_of_the_model():
    backbone = timm_backbone("resnet18", kwargs=SMALL)
    assert backbone.data_config["input_size"] == (3, 224, 224)
    assert backbone.data_config["mean"] == (0.485, 0.456, 0.406)
    grey = Image.new("RGB", (300, 260), (124, 116, 104))
    image = backbone.transform(grey)
    assert image.shape == (3, 224, 224)
    assert image.abs().max() < 0.02  # the ImageNet mean colour


def test_overridden_transform():
    backbone = small_resnet(mean=0.5, std=0.25, crop_pct=1.0, interpolation="bilinear")
    white = backbone.transform(Image.new("RGB", (40, 40), (255, 255, 255)))
    torch.testing.assert_close(white, torch.full((3, 32, 32), 2.0))
    assert backbone.transform_overrides == {}  # random weights expect nothing


def test_a_transform_the_weights_do_not_expect_is_refused_or_stamped(tmp_path):
    torch.save(timm_backbone("resnet18", 5, kwargs=SMALL).net.state_dict(), tmp_path / "w.pt")
    weights = {"weights": tmp_path / "w.pt"}
    with pytest.raises(UserError, match="allow_transform_mismatch=true"):
        small_resnet(**weights)
    backbone = small_resnet(**weights, allow_transform_mismatch=True)
    assert backbone.transform_overrides == {"input_size": (3, 32, 32)}
    same = timm_backbone("resnet18", 5, kwargs=SMALL, crop_mode="center", **weights)
    assert same.transform_overrides == {}


def test_train_transform_augments_before_the_evaluation_transform():
    backbone = small_resnet(mean=0.5, std=0.5)
    red = Image.new("RGB", (32, 32), (255, 0, 0))
    augmented = train_transform(backbone, [lambda image: Image.new("RGB", image.size)])(red)
    assert bool((augmented == -1).all())
    assert torch.equal(train_transform(backbone)(red), backbone.transform(red))


def test_module_backbone_and_its_defaults(caplog):
    caplog.set_level("INFO")
    backbone = module_backbone(TinyNet(), "linear", num_classes=4)
    assert "TinyNet" in caplog.text
    assert backbone.data_config["input_size"] == (3, 224, 224)
    caplog.clear()
    backbone = module_backbone(TinyNet(), "linear", input_size=32, mean=0.0, std=1.0)
    assert caplog.text.count("\n") == 1
    assert "'linear' is the layer or entry of that name; keyword:linear is the" in caplog.text
    backbone.eval()
    image = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(backbone(image).features, backbone.net.features(image))


@pytest.mark.parametrize(
    ("head", "says"),
    [
        ("linaer", r"nearest: linear"),
        ("stem", r"that is a Conv2d"),
        ("neck", r"expected \[2, 8\]"),
    ],
)
def test_a_wrong_head_name_names_the_right_one(head, says):
    with pytest.raises(UserError, match=says):
        module_backbone(TinyNet(), head, input_size=32, mean=0.5, std=0.5)


def test_class_count_and_missing_target():
    with pytest.raises(UserError, match="4 outputs, but the data has 6 classes"):
        module_backbone(TinyNet(), "linear", num_classes=6)
    with pytest.raises(UserError, match="_target_"):
        module_backbone({"depth": 20}, "linear")


class Scaled(TinyNet):
    def forward(self, x):
        return 3 * super().forward(x)


class TwoOutputs(TinyNet):
    def forward(self, x):
        return super().forward(x), x


class Unused(TinyNet):
    def __init__(self):
        super().__init__()
        self.aux = nn.Linear(8, 4)


class SameShape(TinyNet):
    """The named head has the right shape, but another layer makes the logits."""

    def __init__(self):
        super().__init__()
        self.aux = nn.Linear(8, 4)

    def forward(self, x):
        features = self.features(x)
        self.aux(features)
        return self.linear(features)


class Cosine(nn.Linear):
    """A linear layer by class only: weight times features plus bias is not its output."""

    def forward(self, x):
        return nn.functional.linear(nn.functional.normalize(x), self.weight)


class PerToken(TinyNet):
    def forward(self, x):
        tokens = self.stem(x).flatten(2).transpose(1, 2)
        return self.linear(self.neck(tokens)).mean(1)


class NoLinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return self.conv(x).mean((2, 3))


def with_cosine_head():
    net = TinyNet()
    net.linear = Cosine(8, 4)
    return net


@pytest.mark.parametrize(
    ("net", "head", "says"),
    [
        (Scaled(), "linear", "the layers that do: none"),
        (TwoOutputs(), "linear", r"a tuple \(\[2, 4\], \[2, 3, 32, 32\]\)"),
        (Unused(), "aux", "'aux' of Unused does not run"),
        (SameShape(), "aux", "the layers that do: linear"),
        (with_cosine_head(), "linear", "weight times features"),
        (PerToken(), "linear", r"features \[2, 64, 8\]"),
        (NoLinear(), "conv", "no nn.Linear"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else None,
)
def test_networks_that_break_the_contract(net, head, says):
    with pytest.raises(UserError, match=says):
        module_backbone(net, head, input_size=32, mean=0.5, std=0.5)


def test_nan_weights_are_named():
    net = TinyNet()
    net.neck.weight.data[0, 0] = float("nan")
    with pytest.raises(UserError, match="NaN"):
        module_backbone(net, "linear", input_size=32, mean=0.5, std=0.5)


def test_the_check_leaves_no_trace():
    backbone = module_backbone(TinyNet(), "linear", input_size=32, mean=0.5, std=0.5)
    backbone.train()
    backbone.net.norm.eval()  # a frozen normalisation must stay frozen
    modes = [m.training for m in backbone.modules()]
    before = copy.deepcopy(backbone.state_dict())
    random_state = torch.get_rng_state()
    check_contract(backbone)
    assert [m.training for m in backbone.modules()] == modes
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(torch.equal(v, before[k]) for k, v in backbone.state_dict().items())


def test_no_state_between_calls():
    backbone = module_backbone(TinyNet(), "linear", input_size=32, mean=0.5, std=0.5).eval()
    image = torch.rand(2, 3, 32, 32)
    expected = backbone(image)
    twins = [copy.deepcopy(backbone), pickle.loads(pickle.dumps(backbone))]
    for twin in twins:
        twin.head.weight.data.zero_()  # its hook must read its own layer
        twin.head.bias.data.fill_(1.0)
        assert bool((twin(image).logits == 1).all())
        torch.testing.assert_close(twin(image).features, expected.features)
    assert not any(m._forward_pre_hooks for m in backbone.modules())
    assert set(backbone.state_dict()) == {f"net.{k}" for k in TinyNet().state_dict()}


def test_gradients_reach_the_image_and_autocast_works():
    backbone = module_backbone(TinyNet(), "linear", input_size=32, mean=0.5, std=0.5).eval()
    image = torch.rand(2, 3, 32, 32, requires_grad=True)
    backbone(image).features.sum().backward()
    assert image.grad is not None
    with torch.autocast("cpu", torch.bfloat16):
        output = backbone(image)
    assert output.logits.dtype == torch.bfloat16
    assert output.features.shape == (2, 8)


def test_half_precision_parameters_pass_the_check():
    backbone = module_backbone(TinyNet(), "linear", input_size=32, mean=0.5, std=0.5)
    check_contract(backbone.to(torch.bfloat16))


def test_capture_sees_the_maps_of_the_wrapped_net():
    backbone = WrappedBackbone(TinyNet(), "linear").eval()
    with backbone.capture(["net.stem"]) as maps:
        backbone(torch.rand(2, 3, 32, 32))
    assert maps["net.stem"].shape == (2, 6, 8, 8)


@pytest.mark.parametrize(
    ("first", "options"),
    [
        (nn.Conv2d(1, 4, 3), {"image_size": (16, 16)}),
        (nn.Conv2d(1, 4, 3), {"input_size": [1, 16, 16], "mean": 0.5, "std": [0.25]}),
        (
            nn.Sequential(nn.Flatten(), nn.Linear(256, 4), nn.Unflatten(1, (4, 1, 1))),
            {"input_size": 16},
        ),
    ],
)
def test_a_network_of_one_channel_gets_grey_images(first, options):
    layers = [first, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)]
    backbone = module_backbone(nn.Sequential(*layers), "3", 3, **options)
    assert backbone.data_config["input_size"] == (1, 16, 16)
    assert len(backbone.data_config["mean"]) == len(backbone.data_config["std"]) == 1
    red = Image.new("RGB", (16, 16), (255, 0, 0))
    image = backbone.transform(red)
    assert image.shape == (1, 16, 16)
    assert torch.equal(image, backbone.transform(red.convert("L").convert("RGB")))
    assert backbone(image[None]).logits.shape == (1, 3)
    assert train_transform(backbone)(red).shape == (1, 16, 16)
    cropped = train_transform(backbone, geometry=[CenterCrop(16)])
    assert cropped(red).shape == (1, 16, 16)


def test_four_channels_are_found_without_a_convolution():
    net = nn.Sequential(nn.Flatten(), nn.Linear(1024, 3))
    backbone = module_backbone(net, "1", 3, input_size=16)
    assert backbone.data_config["input_size"] == (4, 16, 16)
    assert len(backbone.data_config["std"]) == 4
