"""Which of the processes of a job this is, without loading a framework to find out."""

from __future__ import annotations

import os

#: Set by launchers: torchrun and Lightning, Lightning's own subprocesses, SLURM, jsrun.
_VARIABLES = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")


def rank() -> int:
    """The number of this process, 0 for the main one."""
    return next((int(os.environ[name]) for name in _VARIABLES if name in os.environ), 0)
