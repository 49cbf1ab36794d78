"""What is found out of a network: its head, its features, its logits, and what it says of them."""

from collections import OrderedDict, namedtuple

import pytest
import torch
from tiny_net import TinyNet, bare
from torch import nn
from torch.nn import functional as F

from ood_lab.common.errors import UserError
from ood_lab.models import (
    WeightsFile,
    exported_backbone,
    module_backbone,
    timm_backbone,
    torchvision_backbone,
)
from ood_lab.models.head_kind import HeadKind

IMAGES = torch.randn(5, 3, 32, 32, generator=torch.Generator().manual_seed(1))
PLAIN = {"input_size": 32, "mean": 0.5, "std": 0.5}
WHOLE = module_backbone(TinyNet(), "fc", **PLAIN).eval()


@torch.no_grad()
def outputs(backbone, images=IMAGES):
    return backbone.eval()(images)


def made(net, *arguments, **options):
    return module_backbone(net, *arguments, **PLAIN | options)


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


class After(nn.Module):
    """What ``change(logits, features)`` makes of the network."""

    def __init__(self, change):
        super().__init__()
        self.net, self.change = TinyNet(), change

    def forward(self, image):
        features = torch.relu(self.net.conv(image)).mean((2, 3))
        return self.change(self.net.fc(features), features)


SMALL_VIT = {"img_size": 32, "depth": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size", "kwargs", "heads"),
    [
        ("deit_tiny_distilled_patch16_224", 32, SMALL_VIT, 2),
        ("levit_128s", 224, {}, 2),
        ("pit_ti_distilled_224", 224, {}, 2),
        ("crossvit_tiny_240", 240, {}, 2),
        ("resnetv2_50", 32, {"layers": (1, 1, 1, 1)}, 1),
        ("dla46_c", 64, {}, 1),
        ("dpn48b", 64, {}, 1),
        ("repvit_m0_9", 64, {}, 2),
        ("efficientformer_l1", 224, {}, 2),
        ("efficientformerv2_s0", 224, {}, 2),
        ("swiftformer_xs", 64, {}, 2),
    ],
)
def test_families_of_timm_have_a_linear_head(name, size, kwargs, heads):
    torch.manual_seed(0)
    backbone = timm_backbone(name, 7, input_size=size, kwargs=kwargs)
    found = outputs(backbone, torch.randn(2, 3, size, size))
    assert backbone.kind == HeadKind.LINEAR
    assert len(backbone.reading.names) == heads
    close(F.linear(found.features, backbone.head.weight, backbone.head.bias), found.logits)


def test_a_rectified_convolution_is_a_black_box():
    torch.manual_seed(0)
    backbone = torchvision_backbone("squeezenet1_1", num_classes=7)
    found = outputs(backbone, torch.randn(2, 3, 224, 224))
    assert (backbone.kind, backbone.head) == (HeadKind.BLACK_BOX, None)
    assert found.features.shape == (2, 512)


CHANGED = {
    "cosine": lambda z, x: 10 * F.linear(F.normalize(x), F.normalize(WHOLE.head.weight)),
    "scaled": lambda z, x: z / (1 + z.norm(dim=1, keepdim=True)),
    "averaged": lambda z, x: (z.softmax(1) + z) / 2,
}


@pytest.mark.parametrize("name", CHANGED)
def test_logits_may_be_any_function_of_the_features(name):
    backbone = made(After(CHANGED[name]), features="net.fc", num_classes=3)
    assert backbone.kind == HeadKind.BLACK_BOX
    assert "no linear head makes its logits" in backbone.reading.told
    close(outputs(backbone).logits, CHANGED[name](*outputs(WHOLE)))
    assert backbone.head is None


@pytest.mark.parametrize("log", [False, True])
def test_of_probabilities_the_linear_layer_before_the_softmax_is_taken(log):
    last = nn.LogSoftmax(dim=1) if log else nn.Softmax(dim=1)
    net = nn.Sequential(OrderedDict(net=TinyNet(), last=last))
    whole = outputs(WHOLE)
    for more in ({}, {"head": "net.fc"}):
        backbone = made(net, num_classes=3, **more)
        assert backbone.kind == HeadKind.LINEAR
        assert "softmax); what net.fc gives serves as logits" in backbone.reading.told
        close(outputs(backbone).logits, whole.logits)
        close(outputs(backbone).features, whole.features)


@pytest.mark.parametrize("log", [False, True])
def test_of_other_probabilities_the_logarithm_is_taken_and_said(log):
    last = nn.LogSoftmax(dim=1) if log else nn.Softmax(dim=1)
    net = After(lambda z, x: last(3 * z))  # no layer gives three times the logits
    backbone = made(net, num_classes=3)
    assert backbone.kind == HeadKind.PROBABILITIES
    name = "log_softmax" if log else "softmax"
    assert f"it returns probabilities ({name}); their logarithms serve" in backbone.reading.told
    whole, found = outputs(WHOLE), outputs(backbone)
    close(found.logits, (3 * whole.logits).log_softmax(dim=1))
    close(found.features, whole.features)


@pytest.mark.parametrize("kind", ["script", "export", "entries", "fixed"])
def test_files_of_programs_give_what_they_return(kind, tmp_path):
    net, file, entries = TinyNet().eval(), tmp_path / "net.pt2", {}
    if kind == "entries":
        net, entries = After(lambda z, x: {"z": z, "x": x}), {"output": "z", "features": "x"}
    if kind == "script":
        torch.jit.trace(net, IMAGES).save(str(file))
    else:
        free = {0: torch.export.Dim("n")} if kind != "fixed" else None
        program = torch.export.export(net, (IMAGES[:2],), dynamic_shapes=(free,))
        torch.export.save(program, file)
    backbone = exported_backbone(file, num_classes=3, **entries, **PLAIN)
    found = outputs(backbone)
    close(found.logits, outputs(WHOLE).logits)
    if entries:
        close(found.features, outputs(WHOLE).features)
    assert backbone.kind == (HeadKind.BLACK_BOX if entries else HeadKind.LOGITS)
    assert not backbone.differentiable
    says = "the output|has 3 outputs, but the data has 5 classes"
    with pytest.raises(UserError, match=says):
        exported_backbone(file, num_classes=5, **entries, **PLAIN)


def test_files_that_are_no_program(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        exported_backbone(tmp_path / "net.pt")
    (tmp_path / "net.pt").write_text("no program")
    with pytest.raises(UserError, match=r"neither a TorchScript file nor a program of torch\.expo"):
        exported_backbone(tmp_path / "net.pt")


Pair = namedtuple("Pair", "z x")


def model_output(z, x):
    from transformers.modeling_outputs import ImageClassifierOutput

    return ImageClassifierOutput(logits=z, hidden_states=x)


RETURNED = {
    "dict": (lambda z, x: {"z": z, "x": x, "n": 1}, "z", "x"),
    "tuple": (lambda z, x: (z, x), "0", "1"),
    "named": (Pair, "z", "x"),
    "model output": (model_output, "logits", "hidden_states"),
}


@pytest.mark.parametrize("name", RETURNED)
def test_entries_of_an_output_are_chosen_by_key(name):
    change, logits, features = RETURNED[name]
    net = After(change)
    backbone = made(net, output=logits, features=features)
    assert backbone.kind == HeadKind.LINEAR  # the entry is what the last layer gets
    by_layer = made(net, output=logits, features="net.conv")
    assert by_layer.kind == HeadKind.BLACK_BOX
    alone = made(net, "none", features=features)
    assert alone.kind == HeadKind.FEATURES
    for found in (outputs(backbone), outputs(alone)):
        close(found.features, outputs(WHOLE).features)
    assert outputs(alone).logits.shape == (5, 0)
    close(outputs(by_layer).features, TinyNet().conv(IMAGES).mean((2, 3)))
    close(outputs(backbone).logits, outputs(WHOLE).logits)
    if name != "model output":  # which says which are its logits
        choice = rf"model\.output=KEY chooses one of {logits}, {features}"
        with pytest.raises(UserError, match=choice):
            made(net)
    with pytest.raises(UserError, match=r"has no layer 'nothing' and returns .*\[2, 3\]"):
        made(net, output=logits, features="nothing")


def test_one_logit_is_a_network_of_two_classes():
    net = TinyNet(1)
    backbone = made(net, num_classes=2)
    z = net(IMAGES).detach()
    close(outputs(backbone).logits, torch.cat([torch.zeros_like(z), z], dim=1))
    close(
        outputs(backbone).features @ backbone.head.weight.T + backbone.head.bias,
        outputs(backbone).logits,
    )
    assert "[0, z]" in backbone.reading.told


def test_what_no_linear_layer_makes_is_said_to_be_one_or_the_other():
    with pytest.raises(UserError, match=r"model\.head=none takes only them.*num_classes=8"):
        made(bare(), num_classes=3)
    assert made(bare(), num_classes=8).kind == HeadKind.LOGITS
    assert made(bare(), "none").kind == HeadKind.FEATURES
    assert made(TinyNet()).reading.names == ["fc"]


@pytest.mark.parametrize("head", ["none", "linear", "nearest_mean"])
def test_other_heads_take_what_the_own_one_gets(head, caplog):
    """Of a network with a head, features are its input; its logits only where they are asked."""
    own = outputs(WHOLE)
    caplog.set_level("INFO")

    def features(net, **options):
        backbone = made(net, head, classes=["a", "b"], **options)
        assert (backbone.num_classes, backbone.fitted_head) == (
            (0, None) if head == "none" else (2, head)
        )
        return outputs(backbone).features

    close(features(TinyNet()), own.features)
    said = caplog.text if head != "none" else made(TinyNet(), head).reading.told
    assert "the input of layer 'fc' (model.features=output takes what it returns)" in said
    close(features(TinyNet(), features="output"), own.logits)
    close(features(TinyNet(), features="conv"), TinyNet().conv(IMAGES).mean((2, 3)))
    pair = After(RETURNED["dict"][0])
    close(features(pair, features="x"), own.features)
    close(features(pair, output="z"), own.logits)
    with pytest.raises(UserError, match="has no layer 'nothing'"):
        features(TinyNet(), features="nothing")


class Named(TinyNet):
    """Layers called as keywords are."""

    def __init__(self):
        super().__init__()
        self.linear, self.output = self.fc, self.conv
        del self.fc, self.conv

    def forward(self, image):
        return self.linear(torch.relu(self.output(image)).mean((2, 3)))


def test_a_layer_named_like_a_keyword_has_another_spelling(caplog):
    caplog.set_level("INFO")
    assert made(Named(), "linear").kind == HeadKind.LINEAR
    assert "'linear' is the layer or entry of that name; keyword:linear is the key" in caplog.text
    assert made(Named(), "keyword:linear", 4).fitted_head == "linear"
    maps = outputs(made(Named(), "none", features="output")).features
    logits = outputs(made(Named(), "none", features="keyword:output")).features
    assert (maps.shape, logits.shape) == ((5, 8), (5, 3))
    assert "'output' is the layer or entry of that name; keyword:output" in caplog.text
    with pytest.raises(UserError, match="keeps its own head"):
        made(TinyNet(), features="output")


@pytest.mark.parametrize("head", ["linear", "none"])
def test_weights_matched_by_shape_may_have_a_head_more(head, tmp_path):
    state = {f"a{n}": value for n, value in enumerate(TinyNet().state_dict().values())}
    torch.save(state, tmp_path / "net.pt")
    weights = WeightsFile(tmp_path / "net.pt", match="shape")
    backbone = made(bare(), head, classes=["a", "b"], weights=weights)
    close(outputs(backbone).features, outputs(WHOLE).features)
    state["b"] = torch.ones(4)
    torch.save(state, tmp_path / "more.pt")
    with pytest.raises(UserError, match="no weights in"):
        made(bare(), head, classes=["a"], weights=WeightsFile(tmp_path / "more.pt", match="shape"))
