"""The cores of this machine, and work on all of them.

joblib pickles what each process needs; forked processes here share it.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from ood_lab.common.errors import UserError

if TYPE_CHECKING:
    from lightning import Trainer

Part = TypeVar("Part")
Answer = TypeVar("Answer")

log = logging.getLogger(__name__)
_SHARED = "/dev/shm"
#: How PyTorch, and a killed process, tell that it is full.
_NO_ROOM = re.compile(r"shared memory|shm|unable to write to file </torch", re.IGNORECASE)
_MOST_PROCESSES = 8  # each may hold memory of its own
#: What a forked process works on; it shares the memory, nothing is copied.
_given: tuple[Callable[[Any], Any], Sequence[Any]] = (id, ())


def usable_cores() -> int:
    """Cores that this process may use: fewer than the machine has, where a job was given a part."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def loading_processes(trainer: Trainer, chosen: int, batches: int) -> int:
    """Processes that read images, on which no number depends.

    They are as many as chosen, and for a GPU, which would wait for them, one a core, at most 8 and
    at most one for two batches. A network on a CPU needs the cores itself. 0 = the main process.
    """
    if not chosen or trainer.strategy.root_device.type == "cpu":
        return chosen
    cores = usable_cores() // trainer.num_devices
    return max(chosen, min(cores, _MOST_PROCESSES, batches // 2))


def fitting_processes(
    chosen: int, batch_size: int, sample: Callable[[], dict[str, Any]], sharing: int = 1
) -> int:
    """As many of the chosen loader processes as shared memory has room for; 0 = the main process.

    Each holds two batches there, and two more are on their way. Containers of Docker have 64 MB.

    Args:
        chosen: processes.
        batch_size: images of a batch.
        sample: makes one with its ``image``.
        sharing: processes of this machine that load.
    """
    if not chosen or sys.platform != "linux":
        return chosen
    try:
        batch = batch_size * int(sample()["image"].nbytes)
    except UserError:  # it is reported by whoever reads the image
        return chosen
    free = shared_memory() // sharing
    fitting = max(0, min(chosen, (free // batch - 2) // 2))
    if fitting < chosen:
        _say_once(
            f"/dev/shm, which loader processes share, has {free / 1e6:,.0f} MB, and a batch "
            f"{batch / 1e6:,.0f}: {fitting} of {chosen} processes read images; more memory "
            "(docker run --shm-size=8g) or a smaller data.eval_batch_size is faster"
        )
    return fitting


def shared_memory() -> int:
    """Free bytes of the memory that processes share, on Linux."""
    if not os.access(_SHARED, os.W_OK):
        return 0
    return shutil.disk_usage(_SHARED).free


@cache
def _say_once(text: str) -> None:
    log.warning(text)


def out_of_shared_memory(error: BaseException) -> UserError | None:
    """The line for an error of PyTorch for want of shared memory; None for any other."""
    if not (isinstance(error, RuntimeError | OSError) and _NO_ROOM.search(str(error))):
        return None
    return UserError(
        "there is no room left in /dev/shm, the memory that loader processes share: use none "
        "(data.num_workers=0, or num_workers=0 of your DataLoader), or enlarge it (docker run "
        "--shm-size=8g)"
    )


def can_fork() -> bool:
    """True where a process may be forked: only on Linux is that safe, and not in a loader."""
    linux = sys.platform == "linux" and shared_memory() > 0  # locks are files there
    return linux and not multiprocessing.current_process().daemon


@contextmanager
def on_all_cores(
    work: Callable[[Part], Answer], parts: Sequence[Part], processes: int | None = None
) -> Iterator[list[Callable[[], Answer]]]:
    """What waits for the work on each part and returns, or raises, what came of it.

    The parts are done side by side in forked processes, as those of a DataLoader are: work may hold
    functions and tables, which no other kind of process could be given; its answers are pickled.
    Where there is one core, or no fork, each part is done on request.

    Args:
        work: without effect on this process; it uses no GPU and none of torch's threads.
        parts: in order.
        processes: default one a core, at most 8.
    """
    processes = min(processes or min(usable_cores(), _MOST_PROCESSES), len(parts))
    if processes < 2 or not can_fork():
        yield [partial(work, part) for part in parts]
        return
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(processes, fork, _begin, (work, parts)) as pool:
        try:
            yield [pool.submit(_work, place).result for place in range(len(parts))]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _begin(work: Callable[[Any], Any], parts: Sequence[Any]) -> None:
    """Tells a forked process what there is to do; a Ctrl-C is for the one that forked it."""
    global _given
    _given = work, parts
    # The search for garbage took a fifth of the time: it is rare now, and spares what was forked.
    gc.freeze()
    gc.set_threshold(200_000)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _work(place: int) -> Any:
    work, parts = _given
    return work(parts[place])
