"""NTS-Net against published values and a second way to compute it."""

import functools

import pytest
import torch
from waves import official, size_of, tiny, wave

from ood_lab.common.errors import UserError
from ood_lab.models.fgvc import NTS, NTSNet
from ood_lab.models.fgvc.nts import NTSOutput

SMALL = {"crop": 64, "anchor_scale": 0.5}


def module(net):
    return NTS(backbone=net, optimizer=functools.partial(torch.optim.SGD, lr=0.1))


def test_losses():
    outputs = NTSOutput(
        wave(2, 5, a=1.1), wave(2, 5, a=0.9), wave(2, 6, 5, a=0.7), wave(2, 6, a=1.3)
    )
    terms = module(tiny(NTSNet, **SMALL)).losses(outputs, {"label": torch.tensor([1, 3])})
    expected = {"raw": 1.203362, "concat": 1.200396, "part": 1.818005, "rank": 19.379061}
    assert {k: float(v) for k, v in terms.items()} == pytest.approx(expected, abs=1e-5)
    assert float(sum(terms.values())) == pytest.approx(23.600824, abs=1e-5)


@pytest.mark.slow
def test_size():
    net = official(NTSNet, crop=32)
    assert size_of(net) == 29_033_133
    assert size_of(net.trunk) == 23_508_032


def test_ranking_reaches_the_proposals_alone():
    net = tiny(NTSNet, **SMALL)
    image = wave(2, 3, 128, 128, a=0.7)
    terms = module(net).losses(net.train_outputs(image), {"label": torch.tensor([1, 3])})
    terms["rank"].backward()
    touched = {name for name, p in net.named_parameters() if p.grad is not None}
    assert touched == {name for name, _ in net.named_parameters() if name.startswith("proposals.")}


def test_features_are_the_best_parts_then_the_image():
    net = tiny(NTSNet, **SMALL).eval()
    image = wave(2, 3, 128, 128, a=0.7)
    logits, features = net(image)
    top = net.trunk(image)[-1]
    crops = net.proposals(image, top).crops
    pooled = net.trunk(crops)[-1].mean((2, 3)).view(2, 6, 32)
    expected = torch.cat([*pooled.unbind(1)[:4], top.mean((2, 3))], dim=1)
    torch.testing.assert_close(features, expected)
    trained = net.train_outputs(image)
    torch.testing.assert_close(trained.logits, logits)
    torch.testing.assert_close(trained.parts[1, 5], net.part(pooled[1, 5]))
    torch.testing.assert_close(trained.raw, net.raw(top.mean((2, 3))))


def test_captured_maps_are_of_the_image():
    net = tiny(NTSNet, **SMALL).eval()
    first, second = wave(2, 3, 128, 128, a=0.7), wave(3, 3, 128, 128, a=1.1)
    with net.capture(["trunk.layer4"]) as maps:
        net(first)
        torch.testing.assert_close(maps["trunk.layer4"], net.trunk(first)[-1])
        net(second)
        assert maps["trunk.layer4"].shape == (3, 32, 4, 4)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"name": "vit_tiny_patch16_224"}, "NTS-Net needs a backbone whose last stride is 32"),
        ({"name": "resnet18", "kwargs": {"output_stride": 16}}, "the maps of resnet18 have 2, 4"),
        ({"name": "resnt18"}, "resnet18"),
        ({"name": "resnet18", "num_classes": None}, "ckpt="),
        ({"name": "resnet18", "pretrained": True, "trunk_weights": "x.pt"}, "exclude"),
        ({"name": "resnet18", "trunk_weights": "nowhere/x.pt"}, "nowhere/x.pt"),
    ],
)
def test_refusals_are_one_line(arguments, says):
    with pytest.raises(UserError) as refusal:
        NTSNet(**{"num_classes": 5, "input_size": 64, **SMALL, **arguments})
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_other_pyramids():
    swin = {"embed_dim": 8, "depths": (1, 1, 1, 1), "num_heads": (1, 1, 2, 2), "window_size": 4}
    swin |= {"img_size": 128, "strict_img_size": False}
    net = NTSNet("swin_tiny_patch4_window7_224", 5, kwargs=swin, input_size=128, **SMALL).eval()
    image = wave(2, 3, 128, 128, a=0.7)
    assert net.maps(image)[0].shape == (2, 64, 4, 4)
    torch.testing.assert_close(net.trunk(image)[-1], net.maps(image)[0].permute(0, 2, 3, 1))
    assert net(image).features.shape == (2, 64 * 5)
