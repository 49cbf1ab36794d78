"""Backbones from torchvision by name, with the transform of its weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

import torch
import torchvision.models as zoo
from torchvision.models import WeightsEnum

from ood_lab.common.arguments import Settings
from ood_lab.common.errors import reported_as
from ood_lab.common.files import StrPath
from ood_lab.common.hints import check_known
from ood_lab.models.backbone import DataConfig
from ood_lab.models.image_transforms import TransformSettings
from ood_lab.models.loading.head_search import reading_of
from ood_lab.models.loading.timm_networks import module_backbone
from ood_lab.models.loading.wrapped_network import WrappedBackbone
from ood_lab.models.trial_passes import random_batch
from ood_lab.models.weights import check_one_source, saved_outputs
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
    classes = num_classes or len(published.meta["categories"])
    net = zoo.get_model(name, num_classes=classes)
    reading = reading_of(net, random_batch(net, config["input_size"]), name)
    if weights is not None and num_classes is None and new_head is False and reading.heads:
        # The file's own number of classes, which need not be the published one.
        saved = saved_outputs(weights, net, reading.names[0])
        if saved not in (None, classes):
            net = zoo.get_model(name, num_classes=saved)
    if pretrained:
        net.load_state_dict(_download(published, name))
    net.pretrained_cfg = config
    backbone = module_backbone(
        net.to(memory_format=torch.channels_last),
        reading.names[0] if len(reading.names) == 1 else None,
        num_classes=num_classes,
        weights=weights,
        new_head=new_head,
        allow_transform_mismatch=allow_transform_mismatch,
        data_config=data_config,
        classifier=True,
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


def _download(weights: WeightsEnum, name: str) -> Mapping[str, Any]:
    with reported_as(
        f"the weights of {name} are not in torchvision's cache and cannot be downloaded from "
        f"here: fetch {weights.url} elsewhere and give model.weights=FILE",
        OSError,
    ):
        return weights.get_state_dict(progress=False, check_hash=True)
