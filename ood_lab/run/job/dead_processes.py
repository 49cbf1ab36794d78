"""One line for a job of several processes of which one has died."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterable
from subprocess import Popen
from typing import Any

from ood_lab.common.errors import UserError

#: How gloo, NCCL and torch's own store tell that another process is gone.
_GONE = re.compile(r"gloo|nccl|connection (closed|reset)|broken pipe|TCPStore", re.IGNORECASE)
#: Seconds in which the system tells how a process has ended.
_WAIT = 3.0
#: Of a process that Lightning has started, the one of rank 0 on its node; else a shell.
_PARENT = os.getppid()


def explained(error: Exception, trainers: Iterable[Any]) -> UserError | None:
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
