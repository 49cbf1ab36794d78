"""What the processes of a Trainer have to agree on before and between passes."""

from __future__ import annotations

from typing import TypeVar

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.plugins.environments import LightningEnvironment
from torch import Tensor
from torch.utils.data import DataLoader

_Value = TypeVar("_Value")


def join(trainer: Trainer) -> None:
    """Connects processes that a scheduler has started, so that they can agree on what to do.

    Those that Lightning starts itself appear, and connect, in the first pass.
    """
    environment = getattr(trainer.strategy, "cluster_environment", None)
    if (
        trainer.world_size > 1
        and environment is not None
        and environment.creates_processes_externally
        and not isinstance(environment, LightningEnvironment)
    ):
        trainer.strategy.setup_environment()


def agreed(trainer: Trainer, value: _Value) -> _Value:
    """The main process's value, on all processes that are connected."""
    if trainer.world_size > 1 and torch.distributed.is_initialized():
        return trainer.strategy.broadcast(value)
    return value


def told_by_main(trainer: Trainer, value: _Value) -> _Value:
    """The main process's value, on all processes; connects them where no pass has yet.

    Processes that are forked for each pass have what the main process had: they need no telling.
    """
    join(trainer)
    launcher = trainer.strategy.launcher
    forked = launcher is None or launcher.is_interactive_compatible
    if trainer.world_size > 1 and not torch.distributed.is_initialized() and not forked:
        trainer.predict(_Nothing(), DataLoader(range(trainer.world_size)), return_predictions=False)  # type: ignore[arg-type]
    return agreed(trainer, value)


class _Nothing(LightningModule):
    """A pass in which the processes only meet."""

    def predict_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        """The batch; Lightning warns of none."""
        return batch
