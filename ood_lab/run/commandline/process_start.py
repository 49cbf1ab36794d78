"""This process: its rank in a job, and how it ends."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import util as multiprocessing_util

#: Set by launchers: torchrun and Lightning, Lightning's own subprocesses, SLURM, jsrun.
_VARIABLES = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")


def is_main() -> bool:
    """True on the first process of the job, the only one that writes."""
    number = next((int(os.environ[name]) for name in _VARIABLES if name in os.environ), 0)
    # Users start one process a node and tell Lightning, which starts the others, only its node.
    further_node = "RANK" not in os.environ and int(os.environ.get("NODE_RANK", 0)) > 0
    return not number and not further_node


@contextmanager
def quick_exit() -> Iterator[None]:
    """Ends the process as soon as Python's exit handlers have run, with the status of the block.

    Python would otherwise tear down every loaded package, which takes seconds once torch is among
    them; the operating system reclaims the memory at once. Only for the program that the process
    was started with: handlers that were registered before do not run.
    """
    status = 1  # of an unforeseen error: its traceback is printed before handlers run

    def leave() -> None:
        logging.shutdown()
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except OSError:  # the reader has gone, or the disk is full
            os._exit(status or 1)
        os._exit(status)

    atexit.register(leave)  # the first to be registered is the last to run
    # Registered before, as packages import it: it removes the semaphores of process pools.
    removal = multiprocessing_util._exit_function  # type: ignore[attr-defined]
    atexit.unregister(removal)
    atexit.register(removal)
    try:
        yield
        status = 0
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        raise
