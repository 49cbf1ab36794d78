"""SLURM jobs of a sweep: how the launcher learns that they end, what it reports, what they ignore.

``conf/hydra/slurm.yaml`` names :class:`Cluster` as a callback of Hydra, next to the launcher.
"""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import time
from contextlib import redirect_stderr
from pathlib import Path
from types import FrameType
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from submitit import JobEnvironment
from submitit.core.core import Job
from submitit.core.utils import JobPaths
from submitit.slurm.slurm import SlurmExecutor, SlurmInfoWatcher, SlurmJob

from ood_lab.common.english import counted
from ood_lab.common.errors import UserError

#: States of jobs that will not run again; others, as COMPLETING, may be on their way to a requeue.
_ENDED = (
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "TIMEOUT",
)
_WAITING = "PENDING"
#: The controller remembers jobs for five minutes (MinJobAge): asked within them, it says how they
#: ended.
_MOST_SECONDS = 120
_UNTIL_KILLED = 600


class Watcher(SlurmInfoWatcher):
    """Asks ``squeue``, which every cluster has; submitit's own asks ``sacct``, of the accounting.

    Without accounting, submitit would warn at every call, and wait forever for a job that ended
    before it could leave a result.

    Args:
        folder: of the jobs' scripts and logs, with ``%j`` for the job.
    """

    def __init__(self, folder: str) -> None:
        super().__init__(delay_s=_MOST_SECONDS)
        self.folder = folder

    def _make_command(self) -> list[str] | None:
        if self._registered <= self._finished:
            return None
        own = ("--user", str(os.getuid()))
        return ["squeue", "--noheader", "--array", "--states=all", *own, "--format=%F %K %T"]

    def read_info(self, string: bytes | str) -> dict[str, dict[str, str]]:
        """States by job; a job that the controller no longer knows has ended."""
        text = string if isinstance(string, str) else string.decode()
        states = {}
        for job, index, state in map(str.split, text.splitlines()):
            known = state in (*_ENDED, _WAITING)
            states[job if index == "N/A" else f"{job}_{index}"] = state if known else "RUNNING"
        return {job: {"State": states.get(job, "unknown state")} for job in self._registered}


class Cluster(Callback):
    """Makes submitit ask as :class:`Watcher` does, and be quiet about what is reported later."""

    #: SLURM has asked this job to end.
    stopped = False

    def on_multirun_start(self, config: Any, **kwargs: Any) -> None:
        """On the login node, before the jobs are submitted."""
        SlurmJob.watcher = Watcher(str(config.hydra.launcher.submitit_folder))
        SlurmExecutor._submit_command = _submit_quietly  # type: ignore[method-assign, assignment]

    def on_job_start(self, config: Any, **kwargs: Any) -> None:
        """In a job: processes that it forks, as those that load images, must not requeue it.

        SLURM's signal before the time limit reaches them as well, and so would submitit's handler.
        """
        warned = getattr(signal, f"SIG{JobEnvironment.USR_SIG}")
        os.register_at_fork(after_in_child=lambda: signal.signal(warned, signal.SIG_IGN))
        handler = signal.getsignal(signal.SIGTERM)

        def note(number: int, frame: FrameType | None) -> None:
            self.stopped = True
            if callable(handler):
                handler(number, frame)

        signal.signal(signal.SIGTERM, note)

    def on_job_end(self, config: Any, job_return: JobReturn, **kwargs: Any) -> None:
        """In a job that fails while SLURM stops it: the failure would be told as its result.

        A preempted job is requeued, but the processes that load its images die before it does.
        """
        if self.stopped and job_return.status == JobStatus.FAILED:
            time.sleep(_UNTIL_KILLED)


_submit = SlurmExecutor._submit_command


def _submit_quietly(executor: SlurmExecutor, command: str) -> Job[Any]:
    with redirect_stderr(io.StringIO()):  # it prints what it raises
        return _submit(executor, command)


def reasons(error: Exception) -> list[str]:
    """Waits until all jobs have ended, of which one did with this error; says how each did.

    The launcher itself gives up at the first job that failed. Empty for launchers of submitit that
    do not ask SLURM.

    Raises:
        UserError: SLURM rejected the jobs.
    """
    if isinstance(error.__cause__, subprocess.CalledProcessError):
        raise UserError(_refusal(str(error))) from error
    watcher = SlurmJob.watcher
    if not isinstance(watcher, Watcher):
        return []
    ids = _jobs(watcher)
    while not all(watcher.is_done(job) for job in ids):
        time.sleep(1)
    logs = [JobPaths(watcher.folder, job, 0).stderr for job in ids]
    return [
        f"SLURM job {job} ended ({watcher.get_state(job, 'cache')}); its last line in {log}: "
        f"{_last_line(log)}"
        for job, log in zip(ids, logs, strict=True)
    ]


def going_on() -> str:
    """The message when the user ends the waiting; empty where no job of this process continues."""
    watcher = SlurmJob.watcher
    if not isinstance(watcher, Watcher):
        return ""
    ids = [job for job in _jobs(watcher) if not watcher.is_done(job)]
    if not ids:
        return ""
    arrays = " ".join(dict.fromkeys(job.partition("_")[0] for job in ids))
    return (
        f"{counted(len(ids), 'SLURM job')} still to end: `scancel {arrays}` ends all. "
        "Once no job runs, the same command shows the results and runs what is missing"
    )


def _jobs(watcher: Watcher) -> list[str]:
    """The jobs of this process, in order."""
    known = watcher._registered
    ids = [job for job in known if f"{job}_0" not in known]  # submitit registers an array as well
    return sorted(ids, key=lambda job: [int(part) for part in job.split("_")])


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "none")


def _refusal(message: str) -> str:
    """What ``sbatch`` answers, what the cluster has, and the options that ask for it."""
    prefixes = r"sbatch: (error: )?|Batch job submission failed: "
    lines = [re.sub(prefixes, "", line).strip().rstrip(".") for line in message.splitlines()]
    sinfo = ["sinfo", "--noheader", "--format=%R (nodes: %D, of each: %c CPUs, %m MB, %G)"]
    answer = subprocess.run(sinfo, capture_output=True, text=True, check=False).stdout
    offers = "; ".join(map(str.strip, answer.replace("(null)", "no GPUs").splitlines()))
    return (
        f"SLURM rejected the jobs ({'; '.join(dict.fromkeys(filter(None, lines)))}). "
        f"Its partitions: {offers or 'sinfo names none'}. Ask for what one of them has: "
        "hydra.launcher.partition, nodes, tasks_per_node, cpus_per_task, gpus_per_node (null: "
        "none), mem_gb, timeout_min, account"
    )
