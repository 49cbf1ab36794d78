"""Ends of processes from outside: SIGTERM, as of SLURM at its time limit, and one that has died."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from subprocess import Popen
from types import FrameType
from typing import Any

from ood_lab.common.errors import UserError
from ood_lab.run.commandline.terminal_output import ENDED, TERMINATED, Terminated

#: How gloo, NCCL and torch's own store tell that another process is gone.
_GONE = re.compile(r"gloo|nccl|connection (closed|reset)|broken pipe|TCPStore", re.IGNORECASE)
#: Seconds in which the system tells how a process has ended.
_WAIT = 3.0
#: Of a process that Lightning has started, the one of rank 0 on its node; else a shell.
_PARENT = os.getppid()


@contextmanager
def terminable() -> Iterator[None]:
    """Raises :class:`Terminated` where SIGTERM meets the block, or in place of what that breaks.

    SIGTERM mostly reaches the processes that load images as well, and their end is an error here.
    Where a launcher has a handler of its own, as that of SLURM jobs, which may run again, that
    decides when the block ends, and hears of an error as one.

    Raises:
        Terminated: SIGTERM has come.
        UserError: the same, in place of an error that the launcher is to hear of.
    """
    process, came = os.getpid(), False
    before = signal.getsignal(signal.SIGTERM) or signal.SIG_DFL

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal came
        if os.getpid() != process:  # forked: it has nothing to leave behind
            os._exit(TERMINATED)
        first, came = not came, True
        if callable(before):
            before(number, frame)
        elif first:  # what a first one has begun to close, a second would leave open
            raise Terminated(TERMINATED)

    # Python has signals handled, and handlers set, in its main thread alone.
    in_main = threading.current_thread() is threading.main_thread()
    heard = in_main and before is not signal.SIG_IGN
    if heard:
        signal.signal(signal.SIGTERM, handle)
    try:
        yield
    except Terminated:
        raise
    except BaseException as error:
        if not came and not _is_lightnings(error):
            raise
        if isinstance(error, Exception) and callable(before):
            raise UserError(ENDED) from None
        raise Terminated(
            getattr(error, "code", TERMINATED) if callable(before) else TERMINATED
        ) from None
    finally:
        if heard:
            signal.signal(signal.SIGTERM, before)


def _is_lightnings(error: BaseException) -> bool:
    """Whether another process of a training has had the signal, which Lightning tells them all."""
    if not isinstance(error, SystemExit):
        return False
    from lightning.pytorch.utilities.exceptions import SIGTERMException

    return isinstance(error, SIGTERMException)


def death_of_another(error: Exception, trainers: Iterable[Any]) -> UserError | None:
    """The line for an error that another process of the job has caused; None for any other.

    Args:
        error: of this process.
        trainers: of the job; that on which Lightning has started processes knows how they ended.
    """
    if not (isinstance(error, RuntimeError) and _GONE.search(f"{type(error)} {error}")):
        return None
    who = "another process of this job has ended"
    for trainer in trainers:
        processes = list(getattr(trainer.strategy.launcher, "procs", None) or ())
        if died := _first_dead(processes):
            rank, number = died
            who = f"the process of rank {trainer.global_rank + rank} was ended by {_name(number)}"
    if os.getppid() != _PARENT:  # orphaned; only a shell knows the signal
        who = "the process of rank 0, which had started this one, has ended"
    said = UserError(f"{who}: the same command resumes this run")
    said.__cause__ = error
    return said


def _first_dead(processes: list[Popen[bytes]]) -> tuple[int, int] | None:
    """Number of a process, from 1 on, and the signal that ended it; SIGTERM ends the others."""
    until = time.monotonic() + _WAIT
    while processes and time.monotonic() < until:
        codes = [process.poll() for process in processes]
        ended = [(k, -code) for k, code in enumerate(codes, 1) if code is not None and code < 0]
        if ended:
            return min(ended, key=lambda end: end[1] == signal.SIGTERM)
        time.sleep(0.05)
    return None


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
