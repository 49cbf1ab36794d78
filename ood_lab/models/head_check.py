"""The check of what a backbone gives, and that its head really makes its logits."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ood_lab.common.errors import UserError, reported_as
from ood_lab.models.backbone import Backbone
from ood_lab.models.forward_hooks import hooked
from ood_lab.models.loading.wrapped_network import WrappedBackbone
from ood_lab.models.output import Output, logits_of, probabilities


def check_contract(backbone: Backbone) -> None:
    """Checks ``features @ head.weight.T + head.bias == logits`` on a small random batch.

    Without a head, only that there is one vector an image; ``widths`` and ``normalised`` say which.
    Runs one pass over ``[2, 3, H, W]`` in eval mode without gradients, and leaves the mode of
    every sub-module and the global random state as they were. The tolerance is 1e-4 times the
    largest logit (or 1), more where the parameters are in half precision.

    Raises:
        UserError: the shapes or values do not fit; the message names the layers that would.
    """
    head = backbone.head
    image = random_batch(backbone, backbone.data_config["input_size"])
    with evaluating(backbone):
        with processing(backbone.name, image.shape):
            output = backbone(image)
        _check_shapes(backbone, output)
        backbone.widths = output.features.shape[1], output.logits.shape[1]
        logits, features = output.logits.double(), output.features.double()
        for what, values in (("logits", logits), ("features", features)):
            if not bool(values.isfinite().all()):
                raise UserError(
                    f"{backbone.name} returns NaN or infinite {what} for a random image: "
                    "check its weights"
                )
        backbone.normalised = head is None and probabilities(output.logits) is not None
        if head is None:
            return
        weight = head.weight
        bias = None if head.bias is None else head.bias.double()
        expected = F.linear(features, weight.double(), bias)
        scale = max(1.0, float(logits.abs().max()))
        error = float((expected - logits).abs().max())
        if error > max(1e-4, 16 * torch.finfo(weight.dtype).eps) * scale:
            raise UserError(
                f"the head of {backbone.name} does not make its logits: weight times features "
                f"plus bias is off by {error:.2g}; {_advice(backbone, image)}"
            )


def linear_layers_giving_logits(net: nn.Module, image: Tensor) -> list[str]:
    """Names of the ``nn.Linear`` layers of ``net`` whose output equals the logits of ``image``.

    ``net`` may return the logits, or what has them (:func:`logits_of`).
    """
    outputs: dict[str, Tensor] = {}
    handles = [
        module.register_forward_hook(lambda m, i, out, name=name: outputs.update({name: out}))
        for name, module in net.named_modules()
        if isinstance(module, nn.Linear)
    ]
    with hooked(handles), evaluating(net):
        logits = logits_of(net(image))
    return [
        name
        for name, out in outputs.items()
        if isinstance(logits, Tensor) and out.shape == logits.shape and torch.allclose(out, logits)
    ]


def _advice(backbone: Backbone, image: Tensor) -> str:
    net = backbone.net if isinstance(backbone, WrappedBackbone) else backbone
    candidates = linear_layers_giving_logits(net, image)
    if candidates:
        return f"the layer that does: {', '.join(candidates)}"
    return (
        "no linear layer does (several heads averaged, or a scale after the last layer?): "
        "model.head=null finds out what the network gives"
    )


def processing(
    name: str, shape: Sequence[int], advice: str = "set input_size to what it was made for"
) -> AbstractContextManager[None]:
    """Reports what a network raises for images of this shape, which it may not take."""
    return reported_as(
        f"{name} cannot process images {list(shape)} ({{kind}}: {{reason}}): {advice}"
    )


def _check_shapes(backbone: Backbone, output: Output) -> None:
    name, head = backbone.name, backbone.head
    for key, tensor, last in (
        ("features", output.features, None if head is None else head.in_features),
        ("logits", output.logits, None if head is None else head.out_features),
    ):
        if tensor.ndim != 2 or last not in (None, tensor.shape[1]):
            raise UserError(
                f"{name} gives {key} {list(tensor.shape)}, expected [2, {last or 'D'}]: the head "
                "must be the last layer, applied to one vector per image (after pooling the tokens "
                "or map)"
            )


def channels_taken(net: nn.Module, input_size: tuple[int, ...]) -> int:
    """Channels of the images that ``net`` takes: those of its first layer, if it rejects three."""
    given, height, width = input_size
    first = next((m for m in net.modules() if isinstance(m, nn.Conv2d | nn.Linear)), None)
    if isinstance(first, nn.Conv2d):
        wanted, rest = first.in_channels, 0
    else:
        wanted, rest = divmod(getattr(first, "in_features", 0), height * width)
    if rest or wanted in (0, 3, given):
        return given
    for channels in (3, wanted):
        try:
            with evaluating(net):
                net(random_batch(net, (channels, height, width)))
        except Exception:  # whatever the network of a user raises
            continue
        return channels
    return given


def random_batch(net: nn.Module, input_size: tuple[int, ...]) -> Tensor:
    """The same two random images every time, ``[2, 3, H, W]`` in the dtype of ``net``."""
    generator = torch.Generator().manual_seed(0)
    return like_weights(net, torch.randn(2, *input_size, generator=generator))


def like_weights(net: nn.Module, image: Tensor) -> Tensor:
    """``image`` on the device and in the floating-point type of the weights of ``net``."""
    like = next((p for p in net.parameters() if p.is_floating_point()), None)
    return image if like is None else image.to(device=like.device, dtype=like.dtype)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients inside.

    Outside, modes, buffers and the global random states are again as they were.
    """
    like = next(module.parameters(), None)
    devices = [like.device] if like is not None and like.device.type == "cuda" else []
    with kept_state(module), kept_random_states(), torch.random.fork_rng(devices):
        module.eval()
        with torch.no_grad():
            yield


@contextmanager
def kept_random_states() -> Iterator[None]:
    """The states of ``random`` and ``numpy.random`` are afterwards what they were before."""
    states = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


@contextmanager
def kept_state(module: nn.Module) -> Iterator[None]:
    """Mode and buffers of every sub-module are afterwards what they were before.

    A forward pass may change them, as one that calls ``self.train()`` does.
    """
    modes = {part: part.training for part in module.modules()}
    buffers = [
        (part, name, buffer, buffer.detach().clone())
        for part in module.modules()
        for name, buffer in part.named_buffers(recurse=False)
    ]
    try:
        yield
    finally:
        for part, training in modes.items():
            part.training = training
        with torch.no_grad():
            for part, name, buffer, value in buffers:
                if not torch.equal(buffer, value):
                    buffer.copy_(value)
                setattr(part, name, buffer)
