"""Weights from local files for the trunk, and the training transform of the methods."""

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from torchvision.transforms import CenterCrop, Resize
from waves import TINY, tiny, wave

from ood_lab.common.errors import UserError
from ood_lab.models import train_transform
from ood_lab.models.fgvc import SPSNet
from ood_lab.models.fgvc.base import pyramid

CONVNEXT = {"depths": (1, 1, 1, 1), "dims": (8, 16, 24, 32)}
SWIN = {"img_size": 64, "embed_dim": 8, "depths": (1, 1, 1, 1), "num_heads": (1, 1, 2, 2)}


@pytest.mark.parametrize(
    ("name", "kwargs", "stage", "widths"),
    [
        ("resnet18", TINY, "layer4", [24, 32]),
        ("convnext_atto", CONVNEXT, "stages", [24, 32]),
        ("swin_tiny_patch4_window7_224", SWIN, "layers", [32, 64]),
    ],
)
def test_files_of_whole_networks(tmp_path, name, kwargs, stage, widths):
    whole = timm.create_model(name, num_classes=7, **kwargs).eval()
    maps = {}
    whole.get_submodule(stage).register_forward_hook(lambda m, i, out: maps.update(last=out))
    image = wave(2, 3, 64, 64, a=0.7)
    whole(image)
    classifier = whole.pretrained_cfg["classifier"]
    for file, left_out in (("whole.pth", "nothing"), ("trunk.pth", classifier)):
        state = {k: v for k, v in whole.state_dict().items() if not k.startswith(left_out)}
        torch.save(state, tmp_path / file)
        trunk, channels = pyramid(name, (16, 32), "SPS", weights=tmp_path / file, kwargs=kwargs)
        torch.testing.assert_close(trunk.eval()(image)[-1], maps["last"])
        assert channels == widths


def test_files_that_do_not_fit_are_refused(tmp_path):
    state = timm.create_model("resnet18", **TINY).state_dict()
    torch.save({k: v for k, v in state.items() if k != "bn1.weight"}, tmp_path / "less.pth")
    torch.save(state | {"extra": torch.ones(1)}, tmp_path / "more.pth")
    for file, says in (("less.pth", "first bn1.weight"), ("more.pth", "first extra")):
        with pytest.raises(UserError, match=rf"{file} does not fit resnet18.*{says}"):
            tiny(SPSNet, size=64, trunk_weights=tmp_path / file)


def test_channels_and_strides():
    _, channels = pyramid("resnet18", (8, 16, 32), "P2P-Net", kwargs=TINY)
    assert channels == [16, 24, 32]
    with pytest.raises(UserError, match="P2P-Net needs a backbone whose last strides are 8, 16, 3"):
        pyramid("vit_tiny_patch16_224", (8, 16, 32), "P2P-Net")


def test_training_crops_take_the_place_of_those_of_evaluation():
    options = {"crop_pct": 0.5, "crop_mode": "squash", "interpolation": "bilinear"}
    net = tiny(SPSNet, size=32, mean=0.5, std=0.25, **options)
    pixels = np.random.default_rng(0).integers(0, 255, (50, 70, 3), np.uint8)
    image = Image.fromarray(pixels)
    plain = net.transform(image)
    geometry = [Resize((64, 64)), CenterCrop(32)]
    seen = []

    def note(small):
        seen.append(small.size)
        return small

    trained = train_transform(net, [note], geometry)(image)
    assert seen == [(32, 32)]
    assert trained.shape == plain.shape
    torch.testing.assert_close(trained, plain)
    assert not torch.equal(train_transform(net, None, [Resize((32, 32))])(image), plain)
    assert torch.equal(train_transform(net, None, None)(image), plain)
