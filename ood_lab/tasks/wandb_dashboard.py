"""``task=wandb_dashboard``: a W&B workspace that compares finished runs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from ood_lab.common.installed_packages import need
from ood_lab.run.job.workspace import Task, Workspace
from ood_lab.schema.finished_run import finished_runs

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class WandbDashboard(Task):
    """Writes ``workspace.json``, and saves it in W&B where it is online.

    It shows the runs that W&B has: those that logged to it, and those of ``task=wandb_push``.

    Args:
        runs: run folders, folders of them, or globs of either.

    Raises:
        UserError: wandb-workspaces is missing, W&B rejects the account, no finished run is found,
            or none has scored a detector.
    """

    runs: str | Sequence[str]

    def check(self, ws: Workspace) -> None:
        """See :class:`Task`."""
        from ood_lab.run.tracking.experiment_loggers import check_login

        need("wandb_workspaces", "dashboard", "task=wandb_dashboard")
        check_login(ws.settings["push"])

    def run(self, ws: Workspace) -> None:
        """See the class."""
        from ood_lab.run.tracking.wandb_dashboard import (
            compared,
            dashboard,
            default_entity,
            upload_dashboard,
            write_dashboard,
        )

        if not ws.is_main:
            return
        to = ws.settings["push"]["wandb"]
        online = not to["offline"]
        entity = to["entity"] or (default_entity() if online else "")
        runs = compared(finished_runs(self.runs))
        workspace = dashboard(runs, entity, to["project"])
        file = ws.folder / "workspace.json"
        write_dashboard(workspace, file)
        if online:
            log.info("saved: %s", upload_dashboard(workspace))
            return
        log.info(
            "written: %s. No W&B account is configured here: after `wandb login`, task=wandb_push "
            "uploads the runs, and this command again the workspace",
            file,
        )
