"""Features of images that go into a model in the place of the images, computed once.

What ``get_image_features`` returns for a batch of images is taken apart, one part an image, and
parts of any images are put together again. Families differ in what they return: one tensor with a
row an image or a row a tile, a list with a tensor an image, further features of each layer. Nothing
here knows families; whoever uses parts must compare what a model says with and without them
(:mod:`ood_lab.lvlm.chat.image_features`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ood_lab.common.arguments import Fields
from ood_lab.common.errors import UserError
from ood_lab.common.grouping import without_keys, without_none

#: What ``generate`` knows images by; the other inputs of ``get_image_features`` say how they lie.
PIXELS = ("pixel_values", "pixel_values_images", "image_patches")
#: Its values belong to images; all other lists have one for each layer.
_POOLED = "pooler_output"
#: Outputs of an image's encoder that no language model reads.
_UNREAD = ("hidden_states", "attentions", "qformer_outputs", "vision_outputs")


class ImagePart(NamedTuple):
    """The features of one image, and the class that a model wants them in.

    Args:
        kind: class of the output.
        values: tensors, or lists of them, by the name of the output's field.
    """

    kind: type
    values: Fields


def features_of(model: Any, inputs: Mapping[str, Tensor], images: int) -> list[ImagePart] | None:
    """The features of several images, each apart; None where they cannot be separated.

    Args:
        model: has ``get_image_features``.
        inputs: those that it reads.
        images: their number.
    """
    output = model.get_image_features(**inputs, return_dict=True)
    fields = without_keys(without_none(output), _UNREAD)
    if images == 1:
        return [ImagePart(type(output), fields)]
    pooled = fields.get(_POOLED)
    tokens = [len(item) for item in pooled] if isinstance(pooled, (list, tuple)) else None
    divided = {name: _divided(name, value, images, tokens) for name, value in fields.items()}
    kept = {name: parts for name, parts in divided.items() if parts is not None}
    if (_POOLED if _POOLED in fields else "last_hidden_state") not in kept:
        return None
    return [
        ImagePart(type(output), {name: parts[i] for name, parts in kept.items()})
        for i in range(images)
    ]


def _divided(name: str, value: Any, images: int, tokens: list[int] | None) -> list[Any] | None:
    if torch.is_tensor(value):
        return list(value.split(1)) if value.ndim and len(value) == images else None
    if name == _POOLED:
        return [[item] for item in value] if len(value) == images else None
    layers = [_layer(layer, images, tokens) for layer in value]
    if any(layer is None for layer in layers):
        return None
    return [list(image) for image in zip(*layers, strict=True)]


def _layer(layer: Any, images: int, tokens: list[int] | None) -> list[Any] | None:
    """Of each image, its features in a layer, in the form that the layer has for all of them."""
    if torch.is_tensor(layer):
        fits = tokens is not None and sum(tokens) == len(layer)
        return list(layer.split(tokens)) if fits else None
    return [[item] for item in layer] if len(layer) == images else None


def joined(parts: Sequence[ImagePart]) -> Any:
    """Features of all images, in the order of the parts, as ``mm_encoder_outputs["image"]``.

    Raises:
        UserError: they do not fit together.
    """
    values: Fields = {}
    for name in set.intersection(*(set(part.values) for part in parts)):
        mine = [part.values[name] for part in parts]
        if torch.is_tensor(mine[0]):
            if len({item.shape[1:] for item in mine}) == 1:
                values[name] = torch.cat(mine)
        elif name == _POOLED:
            values[name] = [item for own in mine for item in own]
        else:
            values[name] = [_together(layers) for layers in zip(*mine, strict=True)]
    if not values:
        raise UserError("the features of these images have different shapes")
    return parts[0].kind(**values)


def _together(layers: Sequence[Any]) -> Any:
    if torch.is_tensor(layers[0]):
        return torch.cat(list(layers))
    return [item for part in layers for item in part]


#: Root mean square of what may differ, in standard deviations of a request's scores: rounding
#: depends on what is computed together.
_ROUNDING = {torch.float32: 5e-3, torch.float64: 5e-3}
_COARSE = 0.1


class InferenceMode(Enum):
    """How requests go through a model, the quickest first."""

    FEATURES = "with features of images that were computed before"
    TOGETHER = "several at a time"
    ALONE = "one by one"


class BatchKind(NamedTuple):
    """What can make a batch differ from its requests asked one by one.

    Args:
        way: of its requests.
        images: of each request.
        mixed: whether the images are of different sizes.
        padded: whether the prompts are of different lengths.
    """

    way: InferenceMode
    images: int
    mixed: bool
    padded: bool


def same_scores(one: Tensor, other: Tensor, dtype: torch.dtype) -> bool:
    """Whether scores of the first token, ``[V]``, differ by no more than rounding.

    Args:
        one: the reference.
        other: scores to compare with it.
        dtype: of the model.
    """
    shown = one.isfinite() & other.isfinite()
    if shown.sum() < 2 or not torch.equal(one.isfinite(), other.isfinite()):
        return bool(torch.equal(one, other))
    mine, theirs = one[shown].float(), other[shown].float()
    difference = (mine - theirs).square().mean().sqrt()
    return bool(difference <= _ROUNDING.get(dtype, _COARSE) * mine.std())
