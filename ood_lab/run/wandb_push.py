"""A W&B run made again from a run folder, which is the truth."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import wandb

from ood_lab.io import read_config, read_json, read_table
from ood_lab.run.wandb_log import log_results

if TYPE_CHECKING:
    from ood_lab.run.workspace import Workspace


def push_run(ws: Workspace, path: Path, tables: Sequence[str]) -> None:
    """Uploads a finished run; one that was pushed before is replaced, not doubled.

    The W&B id is a hash of ``<name>/<config hash>/seed=<s>``.

    Args:
        ws: its configuration has the logger as the node ``push.wandb``.
        path: run folder.
        tables: files of which the first one there is what the run found.
    """
    name, digest, seed = path.absolute().parts[-3:]
    config, manifest = read_config(path), read_json(path / "manifest.json")
    table = read_table(next(path / name for name in tables if (path / name).exists()))
    logger = ws.build(
        "push.wandb",
        save_dir=str(ws.folder),
        id=hashlib.sha256(f"{name}/{digest}/{seed}".encode()).hexdigest()[:16],
        name=f"{name}/{digest}/{seed}",
        group=name,
        job_type="pushed",
        tags=list(config.get("tags") or []),
        reinit="finish_previous",
    )
    logger.experiment.config.update({**config, "manifest": manifest}, allow_val_change=True)
    log_results([logger], table, path)
    wandb.finish()
