"""Backbones from torchvision by name, with the transform of its weights."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Unpack

import torch
import torchvision.models as zoo
from torch import nn
from torchvision.models import WeightsEnum

from ood_lab.common.arguments import Settings
from ood_lab.common.errors import reported_as
from ood_lab.common.files import StrPath
from ood_lab.common.hints import check_known
from ood_lab.models.backbone import DataConfig
from ood_lab.models.image_transforms import TransformSettings
from ood_lab.models.loading.timm_networks import built_backbone
from ood_lab.models.loading.wrapped_network import WrappedBackbone
from ood_lab.models.weights import check_one_source
from ood_lab.models.weights_entries import WeightsFile


def torchvision_backbone(
    name: str,
    weights_name: str | None = None,
    num_classes: int | None = None,
    pretrained: bool = False,
    weights: StrPath | None = None,
    new_head: bool | None = False,
    allow_transform_mismatch: bool = False,
    data_config: Settings | None = None,
    **transform: Unpack[TransformSettings],
) -> WrappedBackbone:
    """Builds any classifier of torchvision as a backbone.

    Args:
        name: torchvision's name, such as ``resnet50``, ``vit_b_16``, ``swin_t``, ``regnet_y_16gf``.
        weights_name: which of its weights the transform is taken from, and with ``pretrained`` the
            weights too, such as ``IMAGENET1K_V2``; default: the first that torchvision lists.
        num_classes: outputs of the head; by default the number that ``weights`` has, else the
            weights' own.
        pretrained: take torchvision's weights (downloaded by torchvision unless in its cache).
        weights: take the weights of this file instead; of a folder, the file that has the name
            under which torchvision publishes them.
        new_head: with ``weights``: keep a fresh head, for fine-tuning to other classes; None =
            where the file's has another number of classes.
        allow_transform_mismatch: accept other settings than those of the weights.
        data_config: transform settings of the checkpoint that will be loaded next.
        transform: see :class:`~ood_lab.models.image_transforms.TransformSettings`.

    Raises:
        UserError: an unknown name, weights not to be had, or logits that are not those of one
            linear layer.
    """
    check_one_source(name, pretrained, weights)
    published = _published(name, weights_name)
    config = transform_of(published)
    if weights is not None and Path(weights).is_dir():
        choice = WeightsFile.of(weights)
        weights = WeightsFile(choice.path / Path(published.url).name, choice.entry, choice.match)

    def make(classes: int | None) -> nn.Module:
        outputs = classes or len(published.meta["categories"])
        net: nn.Module = zoo.get_model(name, num_classes=outputs)
        if pretrained:
            with reported_as(
                f"the weights of {name} are not in torchvision's cache and cannot be downloaded "
                f"from here: fetch {published.url} elsewhere and give model.weights=FILE",
                OSError,
            ):
                net.load_state_dict(published.get_state_dict(progress=False, check_hash=True))
        net.pretrained_cfg = config  # type: ignore[assignment]
        return net.to(memory_format=torch.channels_last)

    backbone = built_backbone(
        make,
        name,
        num_classes,
        weights,
        new_head,
        allow_transform_mismatch=allow_transform_mismatch,
        data_config=data_config,
        **transform,
    )
    backbone.outputs = published.meta["categories"] if pretrained else ()
    return backbone


def transform_of(weights: WeightsEnum) -> DataConfig:
    """The transform of published weights as settings of ``timm.data.create_transform``."""
    preset = weights.transforms()
    (crop,), (resize,) = preset.crop_size, preset.resize_size
    share = crop / resize
    while math.floor(crop / share) < resize:  # rounding must not cost a pixel
        share = math.nextafter(share, 0)
    return {
        "input_size": (3, crop, crop),
        "interpolation": preset.interpolation.value,
        "mean": tuple(preset.mean),
        "std": tuple(preset.std),
        "crop_pct": share,
        "crop_mode": "center",
    }


def _published(name: str, weights_name: str | None) -> WeightsEnum:
    names = zoo.list_models(module=zoo)
    check_known([name], names, "torchvision has no classifier '{name}'")
    members = {member.name: member for member in zoo.get_model_weights(name)}
    check_known([weights_name], members, f"torchvision has no weights '{{name}}' of {name}")
    weights: WeightsEnum = members[weights_name or next(iter(members))]
    return weights
