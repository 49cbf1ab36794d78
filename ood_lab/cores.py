"""How many cores there are to work on."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Cores that this process may use: fewer than the machine has, where a job was given a part."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
