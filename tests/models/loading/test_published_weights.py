"""Networks whose published checkpoints are read: OpenOOD's ResNet-18, torchvision's classifiers."""

import pytest
import torch
import torchvision.models as zoo
from PIL import Image
from torch import nn
from torchvision.models.resnet import BasicBlock, ResNet
from torchvision.transforms.functional import to_tensor

from ood_lab.common.errors import UserError
from ood_lab.data.dataset import without_resize
from ood_lab.models import ResNet18For32, torchvision_backbone
from ood_lab.models.loading.torchvision_networks import transform_of

pytestmark = pytest.mark.integration  # whole networks of a library


def test_the_resnet18_of_openood_has_its_tensors_and_computes_what_it_should():
    net = ResNet18For32(10).eval()
    state = net.state_dict()
    assert sum(p.numel() for p in net.parameters()) == 11_173_962
    assert {"conv1.weight", "layer2.0.shortcut.1.bias", "layer4.1.bn2.weight", "fc.bias"} <= set(
        state
    )
    assert len(state) == 122
    # torchvision's, with another stem and another name for the shortcut.
    other = ResNet(BasicBlock, [2, 2, 2, 2], num_classes=10).eval()
    other.conv1, other.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
    other.load_state_dict({k.replace("shortcut", "downsample"): v for k, v in state.items()})
    image = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(net(image), other(image))


@pytest.mark.slow
def test_a_torchvision_network_has_the_transform_of_its_weights(tmp_path):
    torch.manual_seed(0)
    net = zoo.resnet18(num_classes=1000).eval()
    published = zoo.ResNet18_Weights.IMAGENET1K_V1
    file = tmp_path / published.url.rpartition("/")[2]
    torch.save(net.state_dict(), file)
    image = Image.effect_noise((300, 260), 80).convert("RGB")
    for weights in (file, tmp_path):  # the file, or the folder that has it
        backbone = torchvision_backbone("resnet18", weights=weights).eval()
        batch = backbone.transform(image)[None]
        torch.testing.assert_close(batch[0], published.transforms()(image))
        with torch.no_grad():
            torch.testing.assert_close(backbone(batch).logits, net(batch))
    assert backbone.reading.names == ["fc"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "head"), [("swin_t", "head"), ("regnet_y_400mf", "fc")])
def test_the_head_is_found(name, head):
    assert torchvision_backbone(name).reading.names == [head]


def test_every_published_transform_keeps_its_sizes():
    seen = 0
    for name in zoo.list_models(module=zoo):
        for weights in zoo.get_model_weights(name):
            config, preset = transform_of(weights), weights.transforms()
            assert int(config["input_size"][1] / config["crop_pct"]) == preset.resize_size[0], (
                weights
            )
            seen += 1
    assert seen > 100


def test_unknown_names_are_one_line():
    with pytest.raises(UserError, match=r"torchvision has no classifier 'resnet51'.*resnet50"):
        torchvision_backbone("resnet51")
    with pytest.raises(UserError, match=r"no weights 'IMAGENET1K_V9' of resnet50.*IMAGENET1K_V2"):
        torchvision_backbone("resnet50", weights_name="IMAGENET1K_V9")


def test_images_of_the_right_size_are_only_normalised():
    backbone = torchvision_backbone("resnet18")
    image = Image.effect_noise((224, 224), 80).convert("RGB")
    mean, std = (torch.tensor(backbone.data_config[k])[:, None, None] for k in ("mean", "std"))
    expected = (to_tensor(image) - mean) / std
    torch.testing.assert_close(without_resize(backbone.transform)(image), expected)
    assert not torch.allclose(backbone.transform(image), expected)  # enlarged, then cropped
