"""The Trainers of a job: one that fits, one that extracts features."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any

import lightning as L
from hydra.utils import get_class
from lightning.pytorch.callbacks import ProgressBar
from rich import get_console

from ood_lab.features.progress import ExtractionLog, ExtractionProgressBar
from ood_lab.models import EpochSeed, epochs_for
from ood_lab.run import checkpoints

if TYPE_CHECKING:
    from ood_lab.run.workspace import Workspace


def fitting_trainer(ws: Workspace) -> L.Trainer:
    """The Trainer that fits; its checkpoints lie in the run folder."""
    callbacks = [
        ws.build(f"callbacks.{name}", **_callback_arguments(ws, name))
        for name in ws.cfg.callbacks or {}
    ]
    callbacks += [EpochSeed(ws.seed), ws.training_log]
    return _trainer(ws, callbacks, logger=ws.loggers, **_length(ws))


def extracting_trainer(ws: Workspace) -> L.Trainer:
    """The Trainer that extracts features: same devices, no logger, no checkpoint."""
    callbacks: list[L.Callback] = [ExtractionLog()]
    callbacks += [ExtractionProgressBar()] if ws.cfg.callbacks else []
    return _trainer(
        ws,
        callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        inference_mode=False,  # ODIN differentiates with respect to the image
    )


def dry_trainer(ws: Workspace) -> L.Trainer:
    """A Trainer as configured, without callbacks and loggers: can this machine serve it?"""
    return _trainer(ws, [], logger=False, enable_checkpointing=False)


def _trainer(ws: Workspace, callbacks: list[L.Callback], **settings: Any) -> L.Trainer:
    """A Trainer as configured; the only bars are those of ``callbacks``, on a terminal."""
    bars = [callback for callback in callbacks if isinstance(callback, ProgressBar)]
    if not get_console().is_terminal:
        for bar in bars:
            bar.disable()
    if not bars:
        settings["enable_progress_bar"] = False
    if not _has_length(ws):
        settings.setdefault("max_epochs", 1)  # nothing is trained
    trainer: L.Trainer = ws.build("trainer", callbacks=callbacks, **settings)
    return trainer


def _callback_arguments(ws: Workspace, name: str) -> dict[str, str]:
    target = get_class(ws.cfg.callbacks[name]["_target_"])
    wants = "dirpath" in inspect.signature(target).parameters
    return {"dirpath": str(checkpoints.folder(ws.folder))} if wants else {}


def _length(ws: Workspace) -> dict[str, int]:
    """The number of epochs, where the configuration leaves it to the size of the data."""
    if _has_length(ws):
        return {}
    batches = ws.data.batches_per_epoch(dry_trainer(ws).world_size)
    batches = math.ceil(batches / ws.cfg.trainer.get("accumulate_grad_batches", 1))
    return {"max_epochs": epochs_for(batches, **ws.settings["auto_length"])}


def _has_length(ws: Workspace) -> bool:
    """Whether the configuration says when a training ends."""
    ends = (ws.cfg.trainer.get(key) for key in ("max_epochs", "max_steps", "max_time"))
    return any(end is not None for end in ends)
