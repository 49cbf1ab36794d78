"""The device that detectors compute on: blocks of a bank travel there, sums come back.

A bank stays where it is (in memory, or in a mapped file). Everything that has a row for every
image passes through here a block at a time, so that a GPU needs room for a few blocks and for what
the detector has learned. Scores and ``Detector.fitted`` lie on the CPU whatever the device, so that
a detector fitted on one machine scores on any other. Factorisations of ``[D, D]`` matrices (eigh,
pinv, Cholesky) stay on the CPU: they are done once a fit, in float64, which many GPUs have slowly,
and the rank that follows from them must not depend on the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from ood_lab.common.errors import reported_as
from ood_lab.features.bank import FeatureBank
from ood_lab.models.output import WeightAndBias

_CPU = torch.device("cpu")
_chosen: ContextVar[torch.device] = ContextVar("detector device", default=_CPU)


def compute_device() -> torch.device:
    """The device that detectors compute on: the CPU, unless :func:`computing_on` says otherwise."""
    return _chosen.get()


@contextmanager
def computing_on(device: torch.device | str) -> Iterator[None]:
    """Detectors that fit or score inside compute on ``device``."""
    token = _chosen.set(torch.device(device))
    try:
        yield
    finally:
        _chosen.reset(token)


def on_device(values: Tensor) -> Tensor:
    """``values`` where detectors compute; on the CPU, the tensor itself."""
    return values.to(compute_device())


def head_on_device(bank: FeatureBank) -> WeightAndBias:
    """Weight ``[C, D]`` and bias ``[C]`` of the head, float64, where detectors compute."""
    return on_device(bank.head_weight).double(), on_device(bank.head_bias).double()


def within_device_memory(detector: str) -> AbstractContextManager[None]:
    """Turns an exhausted GPU into a message.

    Raises:
        UserError: names the detector and the remedy.
    """
    return reported_as(
        f"{detector} does not fit into the memory of {compute_device()}: set detector_device=cpu, "
        "or remove it from detector=[...]",
        torch.OutOfMemoryError,
    )
