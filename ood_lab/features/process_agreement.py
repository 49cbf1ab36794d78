"""What the processes of a Trainer have to agree on before and between passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.plugins.environments import LightningEnvironment
from lightning.pytorch.strategies import ParallelStrategy
from torch import Tensor
from torch.utils.data import DataLoader

from ood_lab.common.errors import UserError

_Value = TypeVar("_Value")


def join(trainer: Trainer) -> None:
    """Connects processes that begin together, so that they can agree on what to do.

    A scheduler has started all of them, or the user one on every node. Those that Lightning starts
    only on this machine appear, and connect, in the first pass.
    """
    if trainer.world_size == 1 or not isinstance(trainer.strategy, ParallelStrategy):
        return
    environment = trainer.strategy.cluster_environment
    if isinstance(environment, LightningEnvironment):
        if trainer.num_nodes > 1:
            _meet(trainer)
    elif environment and environment.creates_processes_externally:
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
    if trainer.world_size > 1 and not forked:
        _meet(trainer)
    return agreed(trainer, value)


def _meet(trainer: Trainer) -> None:
    """Has Lightning start its processes, and connects them, in a pass over nothing."""
    if not torch.distributed.is_initialized():
        trainer.predict(_Nothing(), DataLoader(range(trainer.world_size)), return_predictions=False)  # type: ignore[arg-type]


def made_by_main(trainer: Trainer, make: Callable[[], _Value]) -> _Value:
    """What the main process makes, on all processes; they fail together.

    Raises:
        UserError: the main process's, on all of them.
    """
    value: _Value | UserError | None = None
    if trainer.global_rank == 0:
        try:
            value = make()
        except UserError as error:
            value = error
    value = told_by_main(trainer, value)
    if isinstance(value, UserError):
        raise value
    return cast(_Value, value)


class _Nothing(LightningModule):
    """A pass in which the processes only meet."""

    description = "processes"

    def predict_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        """The batch; Lightning warns of none."""
        return batch
