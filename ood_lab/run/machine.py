"""Whether this machine can serve the Trainer that was asked for, before anything is begun."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ood_lab.cores import usable_cores
from ood_lab.errors import UserError

#: Where detectors may compute; ``auto`` is the Trainer's GPU, or the CPU where it has none.
DETECTOR_DEVICES = ("auto", "cpu", "cuda")
_GPU = ("gpu", "cuda")


def check_machine(trainer: Mapping[str, Any]) -> None:
    """Compares accelerator and devices of the ``trainer`` node with what this machine has.

    On a CPU every device is a process; two are allowed on a single core, to try them out.

    Raises:
        UserError: there is no GPU, or there are not so many devices.
    """
    accelerator = str(trainer.get("accelerator", "auto"))
    gpus = torch.cuda.device_count()
    if accelerator in _GPU and not gpus:
        raise UserError(
            f"trainer.accelerator={accelerator}: PyTorch finds no GPU on this machine; use "
            "trainer=cpu, or check the driver and that PyTorch was installed with CUDA"
        )
    wanted = _count(trainer.get("devices", 1))
    if wanted is None:
        return
    if accelerator in _GPU or (accelerator == "auto" and gpus):
        if wanted > gpus:
            raise UserError(f"trainer.devices={wanted}: this machine has {gpus} GPU(s)")
    elif accelerator in ("cpu", "auto") and wanted > (most := max(2, usable_cores())):
        raise UserError(
            f"trainer.devices={wanted} would start {wanted} processes on the {usable_cores()} CPU "
            f"core(s) of this machine: give at most {most}"
        )


def check_detector_device(device: str) -> None:
    """Compares ``detector_device`` with what this machine has.

    Raises:
        UserError: it is none of the choices, or there is no GPU.
    """
    if device not in DETECTOR_DEVICES:
        raise UserError(f"detector_device={device}: choose {', '.join(DETECTOR_DEVICES)}")
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError(
            "detector_device=cuda: PyTorch finds no GPU on this machine; use detector_device=cpu, "
            "or check the driver and that PyTorch was installed with CUDA"
        )


def _count(devices: Any) -> int | None:
    """The number of devices; None where Lightning chooses, or refuses what it cannot read."""
    if isinstance(devices, list):
        return len(devices)
    try:
        return int(devices)
    except ValueError:  # "auto", "0,1"
        return len(devices.split(",")) if "," in str(devices) else None
