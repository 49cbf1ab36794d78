"""Asks a local model in several processes, each with a copy of it: ``lvlm.devices=4``.

Lightning starts the processes, one for each device, and shares out the batches, none of them twice.
Replies come back to the process that asked, batch by batch, so that only one process keeps them,
and a benchmark does not know how many answered.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import threading
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from lightning.fabric.plugins.environments.lightning import find_free_network_port
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import BasePredictionWriter
from lightning.pytorch.plugins.environments import LightningEnvironment
from torch.utils.data import DataLoader

from ood_lab.common.errors import UserError, user_error_in
from ood_lab.lvlm.chat.base import Batch, CopiedModel, Reply

#: Seconds after which a process that has ended is noticed.
_NOTICED = 0.5


def replies_of_processes(chat: CopiedModel, batches: Sequence[Batch]) -> Iterator[Reply]:
    """Yields the replies to all batches, each batch as soon as one of the processes has them.

    Args:
        chat: the model, which is not loaded here; each process loads a copy.
        batches: the requests.

    Raises:
        UserError: a process cannot load the model, or ended before it had answered.
    """
    trainer, replies = _trainer(chat), torch.multiprocessing.get_context("spawn").Queue()
    trainer.callbacks.append(_Sender(replies))  # type: ignore[attr-defined]
    errors: list[Exception] = []
    thread = threading.Thread(target=_predict, args=(trainer, chat, batches, errors), daemon=True)
    thread.start()
    missing = sum(len(batch.requests) for batch in batches)
    try:
        while missing:
            ended = not thread.is_alive()  # asked first: what came before the end is in the queue
            try:
                arrived = replies.get(timeout=_NOTICED)
            except queue.Empty:
                if ended:
                    break
                continue
            missing -= len(arrived)
            yield from arrived
    finally:
        if missing:  # whoever reads has stopped: nobody wants the rest
            trainer.strategy.launcher.kill(signal.SIGTERM)  # type: ignore[union-attr]
        thread.join()
    if missing:
        raise _plain(errors[0] if errors else RuntimeError("they have ended")) from None


class _Copies(LightningModule):
    """One copy of the model for each process, loaded there."""

    def __init__(self, chat: CopiedModel, batches: Sequence[Batch]) -> None:
        super().__init__()
        self.chat = chat  # no nn.Module: Lightning has nothing to move or to gather
        self.batches = batches

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begins in its process: what Lightning tells of processes, nobody asked for."""
        for name in ("lightning.pytorch", "lightning.fabric"):
            logging.getLogger(name).setLevel(logging.WARNING)
        warnings.filterwarnings("ignore", module="lightning")
        super().__setstate__(state)

    def on_predict_start(self) -> None:
        """Loads the copy of this process on its device."""
        self.chat.device, self.chat.devices = str(self.device), 1
        self.chat.check()

    def predict_step(self, batch: int, batch_idx: int) -> list[Reply]:
        """Replies to the batch of that number."""
        return self.chat.replies(self.batches[batch])


class _ThisMachine(LightningEnvironment):
    """Processes of one machine, whatever job of SLURM or torchrun the one that asks belongs to."""

    def __init__(self) -> None:
        super().__init__()
        self._main_port = find_free_network_port()  # that of the job is taken

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begins in its process: no agent of torchrun holds the store of these, and all would wait.

        The first of them makes it.
        """
        self.__dict__ |= state
        os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)

    @property
    def main_address(self) -> str:
        """Its own."""
        return "127.0.0.1"

    def node_rank(self) -> int:
        """There is one node."""
        return 0


class _Sender(BasePredictionWriter):
    """Sends the replies to a batch to the process that asked."""

    def __init__(self, replies: Any) -> None:
        super().__init__(write_interval="batch")
        self.replies = replies

    def write_on_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        prediction: list[Reply],
        batch_indices: Sequence[int] | None,
        batch: int,
        batch_idx: int,
        dataloader_idx: int,
    ) -> None:
        """Puts them into the queue."""
        self.replies.put(prediction)


def _trainer(chat: CopiedModel) -> Trainer:
    return Trainer(
        accelerator="cpu" if chat.device_type == "cpu" else "gpu",
        devices=chat.devices,
        strategy="ddp_spawn",
        plugins=[_ThisMachine()],
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )


def _predict(
    trainer: Trainer, chat: CopiedModel, batches: Sequence[Batch], errors: list[Exception]
) -> None:
    numbers: Any = range(len(batches))  # has a length and items: a dataset
    loader: DataLoader[int] = DataLoader(numbers, batch_size=1, collate_fn=_only)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*does not have many workers")
            trainer.predict(_Copies(chat, batches), loader, return_predictions=False)
    except Exception as error:  # told by the thread that reads
        errors.append(error)


def _only(numbers: list[int]) -> int:
    [number] = numbers
    return number


def _plain(error: Exception) -> UserError:
    found = user_error_in(error)
    if found is not None:
        return found
    last = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
    return UserError(
        f"the processes of lvlm.devices ended before they had answered ({last[:200]}): answers "
        "that came before are kept; repeat the command"
    )
