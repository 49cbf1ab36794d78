"""What a step of a training takes on this CPU."""

from __future__ import annotations

import copy
import time

import torch
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor

from ood_lab.models.backbone import Backbone

#: Images of which the time of a step is estimated.
_FEW = 8


def seconds_of_a_step(backbone: Backbone, batch: int) -> float:
    """About the seconds of a forward and backward pass on the CPU over so many images.

    Measured on a copy, with at most 8 random images, of which the time of more follows; weights,
    statistics and random numbers stay as they were.
    """
    n, size = max(2, min(batch, _FEW)), backbone.data_config["input_size"]
    with isolate_rng(include_cuda=False):
        images = torch.randn(n, *size).contiguous(memory_format=torch.channels_last)
        return _seconds(copy.deepcopy(backbone).train(), images) * batch / n


def _seconds(network: Backbone, images: Tensor) -> float:
    """Of the second pass; the first one warms up."""
    seconds = 0.0
    for _ in range(2):
        start = time.perf_counter()
        network.zero_grad()
        with torch.enable_grad():
            network(images).logits.sum().backward()
        seconds = time.perf_counter() - start
    return seconds
