"""The experiment loggers of a job."""

from __future__ import annotations

import io
from contextlib import redirect_stderr
from typing import TYPE_CHECKING

from lightning.pytorch.loggers import Logger

from ood_lab.run.wandb_login import refusals_explained

if TYPE_CHECKING:
    from ood_lab.run.workspace import Workspace


def make_loggers(ws: Workspace) -> list[Logger]:
    """The loggers of the ``logger`` node, which have been told the settings of the run."""
    # Lightning passes W&B an option that W&B warns of.
    with refusals_explained(), redirect_stderr(io.StringIO()):
        loggers = [
            ws.build(f"logger.{name}", save_dir=str(ws.folder)) for name in ws.cfg.logger or {}
        ]
        for logger in loggers:
            logger.log_hyperparams(ws.settings)
    return loggers
