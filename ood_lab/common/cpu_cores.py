"""The cores of this machine, and work on all of them.

joblib pickles what each process needs; forked processes here share it.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from lightning import Trainer

Part = TypeVar("Part")
Answer = TypeVar("Answer")

_MOST_PROCESSES = 8  # each may hold memory of its own
#: What a forked process works on; it shares the memory, nothing is copied.
_given: tuple[Callable[[Any], Any], Sequence[Any]] = (id, ())


def usable_cores() -> int:
    """Cores that this process may use: fewer than the machine has, where a job was given a part."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
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


def can_fork() -> bool:
    """True where a process may be forked: only on Linux is that safe, and not in a loader."""
    return sys.platform == "linux" and not multiprocessing.current_process().daemon


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
