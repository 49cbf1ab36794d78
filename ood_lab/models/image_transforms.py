"""The image transforms of a backbone: its own to evaluate, augmented to train."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict, Unpack

import numpy as np
import torch
from annotated_types import Interval
from PIL import Image
from timm.data import create_transform
from torch import Tensor
from torchvision.transforms import Compose, Grayscale, Normalize, ToTensor

from ood_lab.common.arguments import Positive, PositiveShare, check_values
from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.grouping import without_none
from ood_lab.common.tensor_file import Transform
from ood_lab.models.backbone import Backbone, DataConfig

log = logging.getLogger(__name__)
#: Pixels of a side beyond which a batch of two images fills the memory.
LARGEST = 4096
Pixels = Annotated[int, Interval(ge=1, le=LARGEST)]


def train_transform(
    backbone: Backbone,
    augment: Sequence[Callable[[Image.Image], Image.Image]] | None = None,
    geometry: Sequence[Callable[[Image.Image], Image.Image]] | None = None,
) -> Transform:
    """The training transform: ``augment`` on the PIL image, then the evaluation transform.

    Augmenting before the resize, crop and normalisation of evaluation keeps training and test
    images alike in everything that the augmentation does not mean to change.

    Args:
        backbone: its transform is the evaluation transform.
        augment: steps on the PIL image.
        geometry: steps that take the place of the resize and crop of evaluation, for methods
            that are trained on other crops than they are tested on. They come first, so that
            ``augment`` works on the small image; the normalisation of evaluation ends it.
    """
    if backbone.data_config["input_size"][0] not in (1, 3):
        steps = [*(geometry or []), *(augment or [])]
        _check_steps(backbone, steps)
        first, *rest = backbone.transform.transforms  # type: ignore[attr-defined]
        return Compose([first, *steps, *(rest[-1:] if geometry else rest)])
    if not geometry:
        return Compose([*augment, backbone.transform]) if augment else backbone.transform
    normalise = Normalize(backbone.data_config["mean"], backbone.data_config["std"])
    return Compose([*geometry, *(augment or []), *_first_steps(backbone), ToTensor(), normalise])


class TransformSettings(TypedDict, total=False):
    """How an image becomes what a network takes; what is absent or None is as the network says.

    Attributes:
        input_size: side in pixels, ``(3, H, W)``, ``(1, H, W)`` for grey images, or ``(n, H, W)``.
        mean: per channel, of images in [0, 1]; above 1, of images in [0, 255], as the std is then.
        std: per channel.
        crop_pct: share of the resized image that the centre crop keeps.
        crop_mode: ``center``, ``squash`` or ``border``.
        interpolation: ``bilinear``, ``bicubic``, ...
    """

    input_size: Pixels | tuple[Pixels, Pixels, Pixels] | None
    mean: float | Sequence[float] | None
    std: Positive | Sequence[Positive] | None
    crop_pct: PositiveShare | None
    # timm takes an unknown mode for "center" without a word.
    crop_mode: Literal["center", "squash", "border"] | None
    interpolation: Literal["nearest", "bilinear", "bicubic", "box", "hamming", "lanczos"] | None


def transform_options(**settings: Unpack[TransformSettings]) -> DataConfig:
    """The given options as ``create_transform`` wants them; None = not given.

    Raises:
        UserError: a number that is out of range, or an unknown name.
    """
    if unknown := settings.keys() - TransformSettings.__annotations__.keys():
        raise TypeError(f"got an unexpected keyword argument '{min(unknown)}'")
    check_values(transform_options, settings, "model.backbone")
    options: DataConfig = without_none(settings)
    if size := options.get("input_size"):
        options["input_size"] = (3, size, size) if isinstance(size, int) else tuple(size)
    means, deviations = _three(settings.get("mean")), _three(settings.get("std"))
    both = zip(("mean", "std"), of_unit_range(means, deviations), strict=True)
    return options | {key: values for key, values in both if values is not None}


def of_unit_range(
    mean: tuple[float, ...] | None, std: tuple[float, ...] | None
) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    """Mean and standard deviation of images in [0, 1], where neither exceeds 1.

    Those of images in [0, 255] are divided by 255: ``(255 x - m) / s`` is
    ``(x - m / 255) / (s / 255)``.
    """
    if max((*(mean or ()), *(std or ())), default=0) <= 1:
        return mean, std
    log.warning("mean=%s, std=%s: of pixels from 0 to 255, so both are divided by 255", mean, std)
    first, second = (
        channels and tuple(round(value / 255, 9) for value in channels) for channels in (mean, std)
    )
    return first, second


def set_transform(backbone: Backbone, expected: DataConfig, overrides: DataConfig) -> None:
    """Gives the backbone its ``data_config`` and evaluation transform.

    That of a network of one channel converts every image to grey first, and that of other numbers
    takes the image's :class:`Channels`.

    Raises:
        UserError: ``mean`` or ``std`` has another length than the image has channels.
    """
    config = expected | overrides
    channels = config["input_size"][0]
    backbone.data_config = config if channels == 3 else for_channels(config, channels)
    for key in ("mean", "std"):
        if len(backbone.data_config[key]) != channels:
            number = "three" if channels == 3 else channels
            raise UserError(f"{key}={list(config[key])} must be one number or {number}")
    transform = evaluation_transform(backbone.data_config)
    first = _first_steps(backbone)
    backbone.transform = Compose([*first, *transform.transforms]) if first else transform


def evaluation_transform(config: DataConfig) -> Compose:
    """The transform that timm makes; its last two steps are one where that is possible."""
    transform = create_transform(**config, is_training=False)
    if config["input_size"][0] != 3:
        return transform
    *geometry, to_tensor, normalise = transform.transforms
    return Compose([*geometry, NormalisedTensor(to_tensor, normalise)])


class NormalisedTensor:
    """The steps ``ToTensor`` and ``Normalize`` in half their time, to the last bit.

    It prints as these two do: cached features are keyed by what is printed.

    Args:
        to_tensor: the first of them.
        normalise: the second.
    """

    def __init__(self, to_tensor: ToTensor, normalise: Normalize) -> None:
        self.steps = Compose([to_tensor, normalise])
        self._mean, self._std = (
            torch.as_tensor(values, dtype=torch.float32).numpy()[:, None, None]
            for values in (normalise.mean, normalise.std)
        )

    def __call__(self, image: Image.Image) -> Tensor:
        """Returns ``[3, H, W] float32``; what is no RGB image goes through both steps."""
        if not isinstance(image, Image.Image) or image.mode != "RGB":
            return self.steps(image)
        pixels = np.asarray(image).transpose(2, 0, 1)
        scaled = np.divide(pixels, np.float32(255), dtype=np.float32, order="C")
        scaled -= self._mean
        scaled /= self._std
        return torch.from_numpy(scaled)

    def __repr__(self) -> str:
        return "\n    ".join(map(repr, self.steps.transforms))


def for_channels(settings: DataConfig, channels: int) -> DataConfig:
    """The settings for so many channels; means and deviations of three are averaged over them."""
    changed = dict(settings)
    if "input_size" in settings:
        changed["input_size"] = (channels, *settings["input_size"][1:])
    for key in {"mean", "std"} & settings.keys():
        if len(settings[key]) == 3:
            changed[key] = (sum(settings[key]) / 3,) * channels
    return changed


@dataclass
class Channels:
    """The channels of an image, ``[n, H, W]`` in [0, 1].

    Args:
        channels: n, that the network takes.
    """

    channels: int

    def __call__(self, image: Image.Image) -> Tensor:
        """Raises :class:`UserError` for an image of other channels."""
        array: np.ndarray | None = getattr(image, "channels", None)
        n = len(image.getbands()) if array is None else array.shape[2]
        if array is None or n != self.channels:
            raise UserError(
                f"the network takes {self.channels} channels, and the image has {n}: give images "
                f"[H, W, {self.channels}] as .npy or TIFF, or a network whose first layer takes {n}"
            )
        tensor = torch.from_numpy(np.ascontiguousarray(np.moveaxis(array, 2, 0)))
        return tensor / 255 if tensor.dtype == torch.uint8 else tensor

    def __repr__(self) -> str:
        return f"Channels({self.channels})"


def _first_steps(backbone: Backbone) -> list[Callable[[Image.Image], Any]]:
    """What comes before the resize."""
    channels = backbone.data_config["input_size"][0]
    return [] if channels == 3 else [Grayscale() if channels == 1 else Channels(channels)]


def _check_steps(backbone: Backbone, steps: Sequence[Callable[[Any], Any]]) -> None:
    """Raises :class:`UserError` for a step that does not take tensors of other channels."""
    image = torch.rand(backbone.data_config["input_size"])
    for step in steps:
        with reported_as(
            f"the training transform {type(step).__name__} takes RGB images, and "
            f"{backbone.name} takes {len(image)} channels: remove it from model.augment and "
            "model.geometry",
            (UserError, Exception),
        ):
            step(image)


def stamp_mismatch(
    backbone: Backbone, expected: DataConfig, overrides: DataConfig, allowed: bool
) -> None:
    """Records the options that differ from what the weights are known to expect.

    Raises:
        UserError: some do, and ``allowed`` is False.
    """
    differing = {k: v for k, v in overrides.items() if k in expected and v != expected[k]}
    if differing and not allowed:
        key, value = next(iter(differing.items()))
        raise UserError(
            f"{key}={value} is not what the weights of {backbone.name} expect ({expected[key]}): "
            "remove it, or set model.backbone."
            "allow_transform_mismatch=true to do so on purpose"
        )
    backbone.transform_overrides = differing


def _three(value: float | Sequence[float] | None) -> tuple[float, ...] | None:
    if value is None:
        return None
    return (float(value),) * 3 if isinstance(value, int | float) else tuple(map(float, value))
