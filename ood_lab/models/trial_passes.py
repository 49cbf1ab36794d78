"""Forward passes to find out about a network, which leave no trace in it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from ood_lab.common.errors import reported_as
from ood_lab.common.tensor_arithmetic import random_numbers


def processing(
    name: str, shape: Sequence[int], advice: str = "set input_size to what it was made for"
) -> AbstractContextManager[None]:
    """Reports what a network raises for images of this shape, which it may not take."""
    return reported_as(
        f"{name} cannot process images {list(shape)} ({{kind}}: {{reason}}): {advice}"
    )


def channels_taken(net: nn.Module, input_size: tuple[int, ...]) -> int:
    """Channels of the images that ``net`` takes: those of its first layer, if it rejects three."""
    expected, height, width = input_size
    first = next((m for m in net.modules() if isinstance(m, nn.Conv2d | nn.Linear)), None)
    if isinstance(first, nn.Conv2d):
        wanted, rest = first.in_channels, 0
    else:
        wanted, rest = divmod(first.in_features if first else 0, height * width)
    if rest or wanted in (0, 3, expected):
        return expected
    for channels in (3, wanted):
        try:
            with evaluating(net):
                net(random_batch(net, (channels, height, width)))
        except Exception:  # whatever the network of a user raises
            continue
        return channels
    return expected


def random_batch(net: nn.Module, input_size: tuple[int, ...]) -> Tensor:
    """The same two random images every time, ``[2, 3, H, W]`` in the dtype of ``net``."""
    return like_weights(net, torch.randn((2, *input_size), generator=random_numbers(0)))


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
    """Modes, buffers and devices of every sub-module are afterwards what they were before.

    A forward pass may change them, as one that calls ``self.train()`` does; a Lightning trainer
    leaves on the CPU what it had on a GPU.
    """
    modes = {part: part.training for part in module.modules()}
    devices = [(parameter, parameter.device) for parameter in module.parameters()]
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
        for parameter, device in devices:
            if parameter.device != device:
                parameter.data = parameter.data.to(device)
        with torch.no_grad():
            for part, name, buffer, value in buffers:
                if not torch.equal(buffer, value):
                    buffer.copy_(value)
                setattr(part, name, buffer)
