"""Locks between the processes of one machine, which end with the process that has them.

filelock locks a second file next to the one that is meant; here the open file itself is locked.
"""

from __future__ import annotations

import fcntl
import logging
from typing import IO, Any

log = logging.getLogger(__name__)


def try_lock(file: IO[Any]) -> bool:
    """Takes the exclusive lock of an open file; False when another process has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock(file: IO[Any], waiting: str) -> None:
    """Takes the exclusive lock of an open file; logs ``waiting`` while another process has it."""
    if not try_lock(file):
        log.info("%s", waiting)
        fcntl.flock(file, fcntl.LOCK_EX)
