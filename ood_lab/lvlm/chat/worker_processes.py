"""Asks a local model in several processes, each with a copy of it: ``lvlm.devices=4``.

Replies come back to the process that asked, batch by batch, so that only one process keeps them,
and a benchmark does not know how many answered. The processes know nothing of each other, nor of a
job of SLURM or torchrun that the one that asks belongs to.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from typing import Any

import torch

from ood_lab.common.errors import UserError
from ood_lab.lvlm.chat.base import Batch, CopiedModel, Reply

#: The copy of this process, which its first batch loads.
_copy: CopiedModel


def replies_of_processes(chat: CopiedModel, batches: Sequence[Batch]) -> Iterator[Reply]:
    """Yields the replies to all batches, each batch as soon as one of the processes has them.

    Args:
        chat: the model, which is not loaded here; each process loads a copy.
        batches: the requests.

    Raises:
        UserError: a process cannot load the model, or ended before it had answered.
    """
    context = multiprocessing.get_context("spawn")  # a fork would share what CUDA has open
    numbers = context.SimpleQueue()
    for number in range(chat.devices):
        numbers.put(number)
    pool = ProcessPoolExecutor(chat.devices, context, _begin, (chat, numbers))
    try:
        for answered in as_completed([pool.submit(_replies, batch) for batch in batches]):
            yield from answered.result()
    except BrokenExecutor as error:
        raise UserError(
            f"the processes of lvlm.devices ended before they had answered ({error}): answers "
            "that came before are kept; repeat the command"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(chat: CopiedModel, numbers: Any) -> None:
    """Takes a device for the copy of this process, which ends with the one that asks."""
    global _copy
    kind, devices = chat.device_type, chat.devices
    chat.device = kind if kind == "cpu" else f"{kind}:{numbers.get()}"
    chat.devices, _copy = 1, chat
    if kind == "cpu":
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // devices))
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _replies(batch: Batch) -> list[Reply]:
    _copy.check()
    return _copy.replies(batch)
