"""The device that something computes on."""

from __future__ import annotations

import torch

from ood_lab.common.errors import UserError, reported_as


def chosen_device(device: str | None) -> torch.device:
    """``device``, or the first GPU, else the CPU.

    Raises:
        UserError: it is not a device, or not one of this machine.
    """
    gpus = torch.cuda.device_count()
    problem = f"device={device}: give cpu, cuda, or cuda:1 for the second GPU"
    with reported_as(problem, RuntimeError):
        chosen = torch.device(device or ("cuda" if gpus else "cpu"))
    if chosen.type == "cuda" and (chosen.index or 0) >= gpus:
        raise UserError(f"device={device}: PyTorch finds {gpus} GPU(s) on this machine")
    return chosen
