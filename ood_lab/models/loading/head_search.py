"""What a network gives, found out on a small random batch: its head, its features, its logits."""

from __future__ import annotations

import logging
from collections.abc import Collection, Container, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ood_lab.common.errors import UserError
from ood_lab.common.tensor_arithmetic import largest_difference
from ood_lab.common.tensor_file import Tensors
from ood_lab.models.forward_hooks import watched
from ood_lab.models.loading.wrapped_network import (
    KEYWORD,
    NO_HEAD,
    OUTPUT,
    Reading,
    is_pointwise,
    read,
)
from ood_lab.models.output import as_logits, described, entries_of, entry_of, one_vector
from ood_lab.models.output import probabilities as kind_of
from ood_lab.models.trial_passes import evaluating, processing

log = logging.getLogger(__name__)
#: Largest difference of logits that several layers make, as a share of the largest logit.
TOLERANCE = 1e-4


def keyword_in(
    value: str | None, keywords: Collection[str], names: Container[str], what: str
) -> str | None:
    """The keyword that a setting gives; None where it names a layer or an entry, or is not set.

    Args:
        value: of the setting.
        keywords: of the setting, which names of a network take the place of.
        names: layers and entries of the network.
        what: the setting and the network, such as ``model.head of Net``.
    """
    word = (value or "").removeprefix(KEYWORD)
    if word not in keywords:
        return None
    if word != value or word not in names:
        return word
    log.info(
        "%s: '%s' is the layer or entry of that name; %s%s is the keyword",
        what,
        word,
        KEYWORD,
        word,
    )
    return None


def reading_of(
    net: nn.Module,
    image: Tensor,
    name: str,
    head: str | None = None,
    features: str | None = None,
    output: str | None = None,
    num_classes: int | None = None,
    advice: str = "set model.backbone.input_size to what it was made for",
) -> Reading:
    """What is read of a network.

    Args:
        net: the network.
        image: a small batch.
        name: what messages call it.
        head: name of the layer that makes the logits; None = found, if any; :data:`NO_HEAD` = the
            network gives features.
        features: entry of its output, or layer, with the features; :data:`OUTPUT` = what it
            returns; None = the input of the linear layers that make what it returns, else the
            last vector before the logits, or what it returns where it gives only features.
        output: entry of its output with the logits, or else the features; None = the only one.
        num_classes: of the data: a single logit stands for two classes unless that is 1.
        advice: where it cannot process the images.

    Raises:
        UserError: no such entry or layer, or an output that holds neither.
    """
    returned, layers = _linear_layers(net, image, name, advice)
    entries, parts = entries_of(returned), dict(net.named_modules())
    from_output = keyword_in(features, (OUTPUT,), {*entries, *parts}, f"model.features of {name}")
    features = None if from_output else features
    entry = features if features in entries else None
    chosen = () if entry or features is None else (features,)
    if chosen and features not in parts:
        raise UserError(
            f"{name} has no layer '{features}' and returns {described(returned)}: "
            "model.features=KEY|LAYER names an entry of its output, or a layer"
        )
    if head == NO_HEAD:
        if chosen:
            return Reading(layers=chosen, logits=False)
        vector = entry_of(returned, entry or output, name, "features")
        searched = not (entry or output or from_output) and vector.ndim == 2
        last = tuple(group[0] for group in _makers(layers, vector)) if searched else ()
        return Reading((), last, bool(last), entry or output, logits=False)
    if from_output:
        raise UserError(
            f"model.features={OUTPUT}: {name} keeps its own head, which reads its features; "
            "model.head=linear|nearest_mean|none takes what it returns for features"
        )
    values = entry_of(returned, output, name)
    if values.ndim > 2 or len(values) != len(image):
        raise UserError(
            f"{name} returns logits {list(values.shape)} for {len(image)} images, not [B, C]: "
            "model.output=KEY chooses another entry, model.head=none takes features only"
        )
    kind = kind_of(values)
    single = (values.ndim == 1 or values.shape[1] == 1) and num_classes != 1
    reading = Reading((), chosen, False, entry, output, probabilities=kind, one_logit=single)
    if head and not kind:
        groups: tuple[tuple[str, ...], ...] = ((head,),)
    else:
        near = {head: layers[head]} if head in layers else layers
        groups = _makers(near, values.reshape(len(values), -1), kind)
    if groups:
        linear = Reading(heads=groups, output=output, probabilities=kind, one_logit=single)
        if features is None:
            return linear
        with evaluating(net):  # whether the features that were chosen are those of the head
            one, other = (read(net, layer, image, "").features for layer in (linear, reading))
        if one.shape == other.shape and torch.allclose(one, other, rtol=1e-4, atol=1e-6):
            return linear
    if features is None:
        with evaluating(net):
            last, of_input = ((head,), True) if head else _last_vector(net, image, values)
        reading = replace(reading, layers=last, of_input=of_input)
    return reading


def _linear_layers(
    net: nn.Module, image: Tensor, name: str, advice: str
) -> tuple[object, dict[str, tuple[Tensor, Tensor]]]:
    """What the network returns, and one vector an image before and after all linear layers."""
    inputs: Tensors = {}
    layers: dict[str, tuple[Tensor, Tensor]] = {}

    def keep(layer: str, output: Tensor) -> None:
        before, after = one_vector(inputs[layer]), one_vector(output)
        if before is not None and after is not None:
            layers[layer] = before, after

    linear = [
        layer
        for layer, part in net.named_modules()
        if layer and (isinstance(part, nn.Linear) or is_pointwise(part))
    ]
    see = watched(net, linear, inputs.__setitem__, keep)
    with see, evaluating(net), processing(name, image.shape, advice):
        return net(image), layers


def _makers(
    layers: Mapping[str, tuple[Tensor, Tensor]], logits: Tensor, kind: str | None = None
) -> tuple[tuple[str, ...], ...]:
    """The linear layers that make the logits, in groups of the same input; none where none do.

    One layer, or a 1 x 1 convolution before a mean over positions; or all layers with so many
    outputs, whose mean the logits are. Of probabilities (``kind``), those whose softmax they are.
    """
    if kind:
        logits = as_logits(logits, kind)
    wide = {layer: pair for layer, pair in layers.items() if pair[1].shape == logits.shape}

    def makes(output: Tensor) -> bool:
        values = output.log_softmax(dim=1) if kind else output
        limit = TOLERANCE * float(logits.abs().max()) + 1e-8
        return largest_difference(values, logits) <= limit

    # First, as heads that all begin with zeros cannot be told apart from one of them.
    several = len(wide) > 1 and makes(torch.stack([out for _, out in wide.values()]).mean(dim=0))
    if not several:
        alone = [layer for layer, (_, out) in wide.items() if makes(out)]
        return ((alone[-1],),) if alone else ()
    groups: dict[str, list[str]] = {}
    for layer, (value, _) in wide.items():
        first = next((name for name in groups if torch.equal(wide[name][0], value)), layer)
        groups.setdefault(first, []).append(layer)
    return tuple(map(tuple, groups.values()))


def _last_vector(net: nn.Module, image: Tensor, logits: Tensor) -> tuple[tuple[str, ...], bool]:
    """The layer with the last vector before the logits, and whether it is its input.

    A vector ``[B, D]`` is preferred to a map ``[B, D, H, W]``, whose mean over positions serves;
    one as wide as the logits counts as a step of the head.
    """
    by_rank: dict[int, tuple[tuple[str, ...], bool]] = {}
    width = 1 if logits.ndim == 1 else logits.shape[1]

    def keep(of_input: bool, name: str, value: Any) -> None:
        if (
            isinstance(value, Tensor)
            and value.ndim in (2, 4)
            and len(value) == len(image)
            and value.shape[1] not in (1, width)
            and value.is_floating_point()
            and value.shape != image.shape
        ):
            by_rank[value.ndim] = (name,), of_input

    with watched(net, before=partial(keep, True), after=partial(keep, False)):
        net(image)
    return by_rank.get(2) or by_rank.get(4) or ((), False)
