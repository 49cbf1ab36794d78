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


def features_of(model: Any, inputs: Mapping[str, Tensor], images: int) -> list[Any] | None:
    """The features of several images, each apart; None where they cannot be separated.

    Those of an image are in the class of output that the model wants them in.

    Args:
        model: has ``get_image_features``.
        inputs: those that it reads.
        images: their number.
    """
    output = model.get_image_features(**inputs, return_dict=True)
    fields = without_keys(without_none(output), _UNREAD)
    if images == 1:
        return [type(output)(**fields)]
    pooled = fields.get(_POOLED)
    tokens = [len(item) for item in pooled] if isinstance(pooled, (list, tuple)) else None
    divided = {name: _divided(name, value, images, tokens) for name, value in fields.items()}
    kept = {name: parts for name, parts in divided.items() if parts is not None}
    if (_POOLED if _POOLED in fields else "last_hidden_state") not in kept:
        return None
    return [type(output)(**{name: parts[i] for name, parts in kept.items()}) for i in range(images)]


def _divided(name: str, value: Any, images: int, tokens: list[int] | None) -> list[Any] | None:
    """Of each image, its part of a field or of a layer, in the form that it has for all of them."""
    if torch.is_tensor(value):
        if value.ndim and len(value) == images:
            return list(value.split(1))
        fits = tokens is not None and value.ndim and sum(tokens) == len(value)
        return list(value.split(tokens)) if fits else None
    if name == _POOLED:
        return [[item] for item in value] if len(value) == images else None
    # What a layer lists belongs to images.
    layers = [_divided(_POOLED, layer, images, tokens) for layer in value]
    if any(layer is None for layer in layers):
        return None
    return [list(image) for image in zip(*layers, strict=True)]


def joined(parts: Sequence[Any]) -> Any:
    """Features of all images, in the order of the parts, as ``mm_encoder_outputs["image"]``.

    ``parts`` are those of :func:`features_of`.

    Raises:
        UserError: they do not fit together.
    """
    values: Fields = {}
    for name in set.intersection(*map(set, parts)):
        mine = [part[name] for part in parts]
        flat = torch.is_tensor(mine[0])
        if flat and len({item.shape[1:] for item in mine}) > 1:
            continue
        if flat or name == _POOLED:
            values[name] = _together(mine)
        else:
            values[name] = [_together(layers) for layers in zip(*mine, strict=True)]
    if not values:
        raise UserError("the features of these images have different shapes")
    return type(parts[0])(**values)


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
