"""What a step takes on this CPU, and whether one thread would be faster than all of them."""

from __future__ import annotations

import copy
import logging
import time

import torch
from lightning.pytorch.utilities.seed import isolate_rng
from threadpoolctl import threadpool_limits
from torch import Tensor

from ood_lab.models.backbone import Backbone

log = logging.getLogger(__name__)

#: The part of a batch that is timed: with both settings, two to three steps of the training.
_SHARE = 2
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


def times_of_a_step(backbone: Backbone, images: Tensor) -> tuple[float, float] | None:
    """Seconds of a forward and backward pass with all threads and with one; None where it fails.

    It works on a copy and on a part of the batch, and leaves weights, statistics and random
    numbers as they were: a training has the same digits as without it. Only the
    number of OpenMP's threads is changed and set back, since ``torch.set_num_threads`` also
    changes for good how MKL divides its work.

    Args:
        backbone: on the CPU.
        images: ``[B, 3, H, W]``, of which half are used, two at least.
    """
    part = images[: max(2, len(images) // _SHARE)].detach()
    with isolate_rng(include_cuda=False):
        try:
            network = copy.deepcopy(backbone)
            all_threads = _seconds(network, part)
            with threadpool_limits(1, user_api="openmp"):
                return (
                    (all_threads, _seconds(network, part)) if torch.get_num_threads() == 1 else None
                )
        except Exception as error:  # of a network that is nobody's to know; this is advice only
            log.debug("no time of a step with one thread: %s", error)
            return None


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
