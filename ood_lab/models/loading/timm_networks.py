"""Backbones from timm by name, and from any ``nn.Module``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Literal, Unpack

import timm
import torch
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD, resolve_model_data_config
from torch import nn

from ood_lab.common.arguments import Settings
from ood_lab.common.english import counted
from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.files import StrPath
from ood_lab.common.grouping import without_none
from ood_lab.common.hints import check_known
from ood_lab.models.backbone import DataConfig
from ood_lab.models.head_check import check_contract
from ood_lab.models.image_transforms import (
    TransformSettings,
    for_channels,
    set_transform,
    stamp_mismatch,
    transform_options,
)
from ood_lab.models.loading.head_search import keyword_in, reading_of
from ood_lab.models.loading.headless_networks import FITTED, WithHead
from ood_lab.models.loading.hub_models import one_attempt
from ood_lab.models.loading.wrapped_network import (
    KEYWORD,
    NO_HEAD,
    OUTPUT,
    Reading,
    WrappedBackbone,
)
from ood_lab.models.trial_passes import channels_taken, random_batch
from ood_lab.models.weights import check_one_source, load_weights, new_layers, saved_outputs

# Resize to 256, crop 224: what most networks trained on ImageNet saw.
_IMAGENET = {
    "input_size": (3, 224, 224),
    "interpolation": "bilinear",
    "mean": IMAGENET_DEFAULT_MEAN,
    "std": IMAGENET_DEFAULT_STD,
    "crop_pct": 0.875,
    "crop_mode": "center",
}
#: Pixels of a side up to which the size of the images is one to work at.
LARGEST_TAKEN = 512
_log = logging.getLogger(__name__)


def timm_backbone(
    name: str,
    num_classes: int | None = None,
    pretrained: bool = False,
    weights: StrPath | None = None,
    new_head: bool | None = False,
    allow_transform_mismatch: bool = False,
    kwargs: dict[str, Any] | None = None,
    data_config: Settings | None = None,
    head: Literal["linear", "nearest_mean", "none"] | None = None,
    classes: Sequence[str] = (),
    **transform: Unpack[TransformSettings],
) -> WrappedBackbone:
    """Builds any timm model as a backbone with the transform that its weights expect.

    Args:
        name: timm name, with or without a tag (``resnet50``, ``resnet50.a1_in1k``), or timm's
            ``local-dir:PATH``.
        num_classes: outputs of the head; by default the number that ``weights`` has, else the
            model's own.
        pretrained: take timm's weights (downloaded by timm unless they are in its cache).
        weights: take the weights of this file instead (see :func:`load_weights`).
        new_head: with ``weights``: keep a fresh head, for fine-tuning to other classes; None =
            where the file's has another number of classes.
        allow_transform_mismatch: accept transform settings other than those of the weights; they
            are kept in ``backbone.transform_overrides``.
        kwargs: passed to ``timm.create_model`` (``layers``, ``channels``, ``img_size``, ...).
        data_config: transform settings of the checkpoint that will be loaded next.
        head: fit this head on the model's features, in place of its own; none = features only.
        classes: of the fitted head.
        transform: see :class:`~ood_lab.models.image_transforms.TransformSettings`.

    Raises:
        UserError: unknown name, weights not to be had, a transform other than the weights expect,
            or no model with an output of its own.
    """
    kwargs = dict(kwargs or {})
    check_one_source(name, pretrained, weights)
    if transform.get("input_size") is None:
        transform["input_size"] = kwargs.get("img_size")
    from_weights = pretrained or weights is not None or data_config
    if head is not None:
        return module_backbone(
            create_timm(name, pretrained=pretrained, **kwargs | {"num_classes": 0}),
            f"{KEYWORD}{head}",
            num_classes,
            weights,
            new_head,
            allow_transform_mismatch or not from_weights,
            data_config,
            classes=classes,
            name=name,
            features=f"{KEYWORD}{OUTPUT}",
            **transform,
        )

    def make(classes: int | None) -> nn.Module:
        net = create_timm(name, pretrained=pretrained, num_classes=classes, **kwargs)
        if isinstance(net.get_classifier(), nn.Identity):  # type: ignore[operator]
            raise UserError(f"{name} without classes has no head: num_classes must be at least 1")
        return net

    backbone = built_backbone(
        make,
        name,
        num_classes,
        weights,
        new_head,
        allow_transform_mismatch=allow_transform_mismatch or not from_weights,
        data_config=data_config,
        **transform,
    )
    if not from_weights:
        backbone.transform_overrides = {}
    if pretrained:
        pretrained_cfg: DataConfig = backbone.net.pretrained_cfg  # type: ignore[assignment]
        backbone.outputs = list(pretrained_cfg.get("label_names") or ())
        backbone.fresh_head = pretrained_cfg.get("num_classes") != backbone.num_classes
    return backbone


def built_backbone(
    make: Callable[[int | None], nn.Module],
    name: str,
    num_classes: int | None,
    weights: StrPath | None,
    new_head: bool | None,
    **settings: Any,
) -> WrappedBackbone:
    """A backbone of a classifier of another package, which is built for so many classes.

    Args:
        make: builds it, with ``pretrained_cfg``, for a number of classes; None = its own.
        name: what messages call it.
        num_classes: outputs of the head; None = the number that ``weights`` has, else its own.
        weights: file with its weights.
        new_head: see :func:`module_backbone`.
        settings: further ones of :func:`module_backbone`.
    """
    net = make(num_classes)
    usual = resolve_model_data_config(net)["input_size"]
    size = transform_options(input_size=settings.get("input_size")).get("input_size", usual)
    image = random_batch(net, (channels_taken(net, size), *size[1:]))
    reading = reading_of(net, image, name)
    if weights is not None and num_classes is None and new_head is False and reading.heads:
        saved = saved_outputs(weights, net, reading.names[0])
        if saved not in (None, WrappedBackbone(net, reading).num_classes):
            net = make(saved)
    return module_backbone(
        net,
        None,
        num_classes,
        weights,
        new_head,
        name=name,
        classifier=True,
        reading=reading,
        **settings,
    )


class NetworkSettings(TransformSettings, total=False):
    """Arguments of :func:`module_backbone` for a network that was built elsewhere."""

    head: str | None
    num_classes: int | None
    image_size: Sequence[int] | None
    classes: Sequence[str]
    features: str | None
    output: str | None


def module_backbone(
    net: nn.Module,
    head: str | None = None,
    num_classes: int | None = None,
    weights: StrPath | None = None,
    new_head: bool | None = False,
    allow_transform_mismatch: bool = False,
    data_config: Settings | None = None,
    image_size: Sequence[int] | None = None,
    classes: Sequence[str] = (),
    name: str | None = None,
    features: str | None = None,
    output: str | None = None,
    classifier: bool = False,
    reading: Reading | None = None,
    **transform: Unpack[TransformSettings],
) -> WrappedBackbone:
    """Makes a backbone of any network that gives logits, features, or both.

    What ``net`` expects of its images is taken, in this order, from the arguments, from a
    checkpoint of this project, from ``net.pretrained_cfg`` (timm), for the size from the images
    themselves where all are alike, and else from the ImageNet habit (224 pixels, resize to 256,
    ImageNet mean and std). What nothing states is logged.

    Args:
        net: maps ``[B, 3, H, W]`` to logits ``[B, C]``, or to features ``[B, D]``.
        head: name of its last linear layer, as in ``net.named_modules()``; None = found, if any.
            Where none has that name, or after ``keyword:``, ``linear`` and ``nearest_mean`` are
            heads to be fitted on features, and ``none`` takes only these.
        num_classes: expected number of outputs, checked.
        weights: file with the weights of ``net`` (see :func:`load_weights`).
        new_head: with ``weights``: keep the fresh head of ``net``; None = where the file's has
            another number of outputs.
        allow_transform_mismatch: accept other settings than a checkpoint or ``pretrained_cfg`` has.
        data_config: transform settings of the checkpoint that will be loaded next.
        image_size: width and height that all images of the data share, up to 512 pixels.
        classes: of a head that is fitted.
        name: what messages call the network; its class by default.
        features: entry of its output, or layer, with the features; ``output`` = what it returns;
            None = the input of the head or, of a network that gives features, what it returns.
        output: entry of its output with the logits; None = the only one.
        classifier: what it returns are logits; else they are taken for that with a linear head, as
            probabilities, or if there are as many as classes.
        reading: what is read of it, where that is clear; None = that is found out.
        transform: see :class:`~ood_lab.models.image_transforms.TransformSettings`; ``crop_pct`` is
            1 where only the size is known.

    Raises:
        UserError: no such layer, other weights, another number of classes, or logits that are not
            those of ``head``.
    """
    if not isinstance(net, nn.Module):
        raise UserError(f"model.net is a {type(net).__name__}, not an nn.Module: give its _target_")
    name = name or type(net).__name__
    layers = dict(net.named_modules())
    keyword = keyword_in(head, (*FITTED, NO_HEAD), layers, f"model.head of {name}")
    fitted = keyword if keyword in FITTED else None
    outputs = num_classes or len(classes)
    if head is not None and keyword is None:
        named = WrappedBackbone(net, head, name)
        _check_outputs(named, num_classes)
    elif fitted and not outputs:
        raise UserError(
            f"model.head={head} is fitted on ID images, and these have no labels to fit one: give "
            "data.id.train images of several classes, or take features only: model.head=none"
        )
    of_timm = getattr(net, "pretrained_cfg", None)
    config = resolve_model_data_config(net) if of_timm else {}
    fresh: Sequence[str] = ()
    if weights is not None:
        heads = reading.names if reading else [str(head)] * (head in layers)
        fresh = new_layers(weights, net, heads, new_head)
        config |= load_weights(net, weights, name, fresh, headless=keyword is not None)
    config |= _as_saved(data_config)
    overrides = transform_options(**transform)
    open_keys = [k for k in ("input_size", "mean", "std") if k not in config and k not in overrides]
    habit = _IMAGENET | ({} if "input_size" in open_keys else {"crop_pct": 1.0})
    keeps_size = image_size is not None and max(image_size) <= LARGEST_TAKEN
    if keeps_size and "input_size" in open_keys:
        habit |= {"input_size": (3, *reversed(image_size or ())), "crop_pct": 1.0}
    expected = habit | config
    input_size = (expected | overrides)["input_size"]
    if (channels := channels_taken(net, input_size)) != input_size[0]:
        expected, overrides = for_channels(expected, channels), for_channels(overrides, channels)
        how = "images are converted to grey" if channels == 1 else "images need as many"
        _log.info("%s takes %s: %s", name, counted(channels, "channel"), how)
    if open_keys:
        _log.warning(
            "%s does not say what images it expects; taking %s",
            name,
            ", ".join(f"{key}={_words(key, expected[key], keeps_size)}" for key in open_keys),
        )
    image = random_batch(net, (expected | overrides)["input_size"])
    wanted = head if keyword is None else NO_HEAD
    reading = reading or reading_of(net, image, name, wanted, features, output, num_classes)
    if fitted:
        if reading.layers:
            _log.info("%s: a head is fitted on %s", name, reading.place)
        net = WithHead(net, reading, outputs, image, name)
        reading = Reading(heads=(("head",),))
    backbone = WrappedBackbone(net, reading, name)
    backbone.fitted_head, backbone.fresh_head = fitted, bool(fresh)
    set_transform(backbone, expected, overrides)
    stamp_mismatch(backbone, config, overrides, allow_transform_mismatch)
    check_contract(backbone)
    explicit = classifier or output or reading.probabilities or head is not None
    if not (explicit or reading.heads) and backbone.num_classes != outputs:
        width = backbone.num_classes
        raise UserError(
            f"no linear layer makes the output [2, {width}] of {name}. If it gives features, "
            "model.head=none takes only them and model.head=linear|nearest_mean fits a head on ID "
            f"train; if these are logits, say so: model.backbone.num_classes={width}"
        )
    if head is None:
        _check_outputs(backbone, num_classes)
    return backbone


def _check_outputs(backbone: WrappedBackbone, num_classes: int | None) -> None:
    """Raises :class:`UserError` if a network has other classes than the data."""
    outputs = backbone.num_classes
    if num_classes in (None, outputs):
        return
    head, name = backbone.reading.names[:1], backbone.name
    what = f"the head '{head[0]}' of {name}" if head else name
    raise UserError(
        f"{what} has {outputs} outputs, but the data has {num_classes} classes: "
        f"model.net.KEY={num_classes} builds one for them, with KEY as its class calls their "
        "number. eval.py without ckpt scores this head unchanged, with model.weights=FILE or, "
        "where the network has weights, model.pretrained=true"
    )


def _as_saved(data_config: Settings | None) -> DataConfig:
    """Transform settings as a checkpoint has them: a configuration makes lists of its tuples."""
    entries = (data_config or {}).items()
    return {key: tuple(value) if isinstance(value, list) else value for key, value in entries}


def _words(key: str, value: tuple[float, ...], of_images: bool) -> str:
    """A setting that was not given, and where its value comes from."""
    origin = "that of all images" if of_images and key == "input_size" else "as for ImageNet"
    shown = f"{value[2]} × {value[1]}" if key == "input_size" else ", ".join(map(str, value))
    return f"{shown} ({origin})"


def create_timm(name: str, pretrained: bool, **kwargs: Any) -> nn.Module:
    """``timm.create_model`` in the memory layout that is fast.

    Raises:
        UserError: unknown name, weights not to be had, or arguments that timm rejects.
    """
    _check_timm_name(name)
    from_hub = pretrained or name.startswith(("hf-hub:", "hf_hub:"))
    arguments = without_none(kwargs)
    rejected = reported_as(
        f"timm cannot build {name} with pretrained={pretrained}, {arguments}: {{reason}}",
        (TypeError, ValueError, AssertionError, RuntimeError),
    )
    unavailable = reported_as(
        f"the pretrained weights of {name} are not in the cache and cannot be downloaded from "
        "here: fetch them elsewhere and give model.weights=FILE (or name=local-dir:PATH)",
        OSError,
    )
    with rejected, unavailable, one_attempt() if from_hub else nullcontext():
        net = timm.create_model(name, pretrained=pretrained, **kwargs)
    # Convolutions are up to twice as fast in this layout, on CPUs and tensor cores alike.
    return net.to(memory_format=torch.channels_last)


def _check_timm_name(name: str) -> None:
    if ":" in name:  # hf-hub: and local-dir: names are looked up by timm itself
        return
    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture):
        check_known([architecture], timm.list_models(), "timm has no model '{name}'")
    if tag:
        tags = timm.list_models(f"{architecture}.*", pretrained=True)
        check_known([name], tags, "timm has no weights '{name}'")
