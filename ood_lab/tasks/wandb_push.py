"""``task=wandb_push``: W&B runs made again from run folders."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from rich.progress import track

from ood_lab.common.english import counted
from ood_lab.run.job.workspace import Task, Workspace
from ood_lab.schema.finished_run import finished_runs

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class WandbPush(Task):
    """Uploads finished runs; a run that was pushed before is replaced, not doubled.

    Each becomes one W&B run with the configuration, record, summary, tables, charts, figures
    and report of its folder.

    Args:
        runs: run folders, folders of them, or globs of either.

    Raises:
        UserError: no finished run is found.
    """

    runs: str | Sequence[str]

    def run(self, ws: Workspace) -> None:
        """See the class."""
        from ood_lab.run.tracking.experiment_loggers import push_run

        if not ws.is_main:
            return
        runs = finished_runs(self.runs)
        make_logger = partial(ws.build, "push.wandb", save_dir=str(ws.folder))
        for run in track(runs, f"Pushing {counted(len(runs), 'run')}", transient=True):
            push_run(run, make_logger)
        log.info("%s pushed; offline ones wait for `wandb sync` below %s", len(runs), ws.folder)
