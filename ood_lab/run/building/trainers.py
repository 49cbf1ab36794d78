"""The Trainers of a job, for fitting and for extracting; checks what this machine offers."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning as L
import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch.callbacks import ProgressBar
from omegaconf import DictConfig
from rich import get_console

from ood_lab.common.arguments import Settings
from ood_lab.common.cpu_cores import usable_cores
from ood_lab.common.errors import UserError
from ood_lab.features.lightning_extractor import ExtractionLog, ExtractionProgressBar
from ood_lab.models import WholeCheckpointIO, epochs_for
from ood_lab.run.building import checkpoints, nodes
from ood_lab.scripts import command

if TYPE_CHECKING:
    from lightning.pytorch.loggers import Logger

    from ood_lab.data.datamodules.base import OODDataModule

#: Devices for detectors; ``auto`` is the Trainer's GPU, or the CPU if it has none.
DETECTOR_DEVICES = ("auto", "cpu", "cuda")
_GPU = ("gpu", "cuda")
_NO_GPU = (
    "PyTorch finds no GPU on this machine; use {}, or check the driver and that PyTorch was "
    "installed with CUDA"
)


def fitting_trainer(
    cfg: DictConfig,
    run: Path,
    callbacks: Sequence[L.Callback],
    loggers: Sequence[Logger],
    data: Callable[[], OODDataModule],
) -> L.Trainer:
    """The Trainer for fitting; its checkpoints are in the run folder.

    Args:
        cfg: the configuration, whose callbacks come before the given ones.
        run: the run folder.
        callbacks: of this training, in addition to those of the configuration.
        loggers: what the training writes to.
        data: returns the DataModule, in case its size decides how long the training is.
    """
    configured = []
    for name, node in (cfg.callbacks or {}).items():
        of_checkpoints = "dirpath" in inspect.signature(nodes.target(node)).parameters
        place = {"dirpath": str(checkpoints.folder(run))} if of_checkpoints else {}
        configured.append(nodes.build(cfg, f"callbacks.{name}", **place))
    trainer = _trainer(cfg, [*configured, *callbacks], logger=loggers, **_length(cfg, data))
    if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:  # not a user's own
        trainer.strategy.checkpoint_io = WholeCheckpointIO()
    return trainer


def extracting_trainer(cfg: DictConfig) -> L.Trainer:
    """The Trainer for extracting features: same devices, no logger, no checkpoints."""
    callbacks: list[L.Callback] = [ExtractionLog()]
    callbacks += [ExtractionProgressBar()] if cfg.callbacks else []
    return _trainer(
        cfg,
        callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        inference_mode=False,  # ODIN differentiates with respect to the image
    )


def dry_trainer(cfg: DictConfig) -> L.Trainer:
    """A Trainer as configured, without callbacks or loggers, to test this machine."""
    return _trainer(cfg, [], logger=False, enable_checkpointing=False)


def check_machine(trainer: Settings) -> None:
    """Compares accelerator and devices of the ``trainer`` node with what this machine has.

    On a CPU every device is a process; two are allowed on a single core, to try them out.

    Raises:
        UserError: there is no GPU, or there are too few devices.
    """
    accelerator = str(trainer.get("accelerator", "auto"))
    gpus = torch.cuda.device_count()
    if accelerator in _GPU and not gpus:
        raise UserError(f"trainer.accelerator={accelerator}: {_NO_GPU.format('trainer=cpu')}")
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


def check_trainer(cfg: DictConfig, settings: Settings, trains: bool) -> None:
    """Checks the Trainer of a job before anything is built.

    Args:
        cfg: of the job.
        settings: the same, resolved.
        trains: whether a network is trained.

    Raises:
        UserError: see :func:`check_machine`; torchrun has started more processes than the Trainer
            joins, each of which would do all the work and write the same files; the training has no
            steps, so that it leaves no weights behind, or the devices do not divide
            ``data.batch_size``.
    """
    from ood_lab.data.datamodules.preparation_steps import Loading

    check_machine(settings["trainer"])
    devices = dry_trainer(cfg).world_size
    started = int(os.environ["WORLD_SIZE"]) if "TORCHELASTIC_RUN_ID" in os.environ else 1
    if devices < started:
        here = int(os.environ.get("LOCAL_WORLD_SIZE", started))
        nodes = f" trainer.num_nodes={started // here}" if started > here else ""
        raise UserError(
            f"torchrun has started {started} processes, and the Trainer works with {devices}: give "
            f"trainer=ddp trainer.devices={here}{nodes}, or trainer=ddp_cpu with the same on a CPU"
        )
    if not trains:
        return
    for key in ("max_epochs", "max_steps"):
        if settings["trainer"].get(key) == 0:
            raise UserError(
                f"trainer.{key}=0 trains nothing: give at least 1; {command('eval')} scores "
                "weights unchanged, with model.pretrained=true, model.weights=FILE or ckpt=RUN"
            )
    Loading(settings["data"].get("batch_size", devices)).on_each(devices)


def check_detector_device(device: str) -> None:
    """Compares ``detector_device`` with what this machine has.

    Raises:
        UserError: it is not one of the choices, or there is no GPU.
    """
    if device not in DETECTOR_DEVICES:
        raise UserError(f"detector_device={device}: choose {', '.join(DETECTOR_DEVICES)}")
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError(f"detector_device=cuda: {_NO_GPU.format('detector_device=cpu')}")


def _trainer(cfg: DictConfig, callbacks: list[L.Callback], **settings: Any) -> L.Trainer:
    """A Trainer as configured; on a terminal, the only progress bars are those of ``callbacks``."""
    bars = [callback for callback in callbacks if isinstance(callback, ProgressBar)]
    if not get_console().is_terminal:
        for bar in bars:
            bar.disable()
    if not bars:
        settings["enable_progress_bar"] = False
    if not has_length(cfg):
        settings.setdefault("max_epochs", 1)  # nothing is trained
    trainer: L.Trainer = nodes.build(cfg, "trainer", callbacks=callbacks, **settings)
    return trainer


def _length(cfg: DictConfig, data: Callable[[], OODDataModule]) -> dict[str, int]:
    """The number of epochs, if the configuration leaves it to the size of the data."""
    if has_length(cfg):
        return {}
    steps = steps_per_epoch(cfg, data(), dry_trainer(cfg).world_size)
    return {"max_epochs": epochs_for(steps)}


def steps_per_epoch(cfg: DictConfig, data: OODDataModule, devices: int) -> int:
    """Optimiser steps of an epoch."""
    return math.ceil(
        data.batches_per_epoch(devices) / cfg.trainer.get("accumulate_grad_batches", 1)
    )


def has_length(cfg: DictConfig) -> bool:
    """True if the configuration says when training ends."""
    ends = (cfg.trainer.get(key) for key in ("max_epochs", "max_steps", "max_time"))
    return any(end is not None for end in ends)


def _count(devices: Any) -> int | None:
    """The number of devices; None if Lightning is to choose or to reject the value."""
    if isinstance(devices, list):
        return len(devices)
    try:
        return int(devices)
    except ValueError:  # "auto", "0,1"
        return len(devices.split(",")) if "," in str(devices) else None
