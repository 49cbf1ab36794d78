"""``task=wandb_push``: W&B runs made again from run folders, which are the truth."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import wandb
from rich.progress import track

from ood_lab.io import read_config, read_json, read_table
from ood_lab.run.wandb_log import log_results
from ood_lab.tasks.compare import finished_runs

log = logging.getLogger(__name__)
#: What a run is about: detectors, or the shift of sets.
TABLES = ("results.parquet", "shift.csv")


def wandb_push(
    *, build: Callable[..., Any], folder: Path, is_main: bool, runs: str | Sequence[str]
) -> None:
    """Uploads finished runs; a run that was pushed before is replaced, not doubled.

    Each becomes one W&B run with the configuration, manifest, summary, tables, charts, figures
    and report of its folder. The W&B id is a hash of ``<name>/<config hash>/seed=<s>``.

    Args:
        build: makes the logger of the node ``push.wandb``.
        folder: run folder of this job; offline files are written there.
        is_main: False on the other ranks, which have nothing to do.
        runs: run folders, folders of them, or globs of either.

    Raises:
        UserError: no finished run is found.
    """
    if not is_main:
        return
    paths = finished_runs([runs] if isinstance(runs, str) else list(runs), TABLES)
    for path in track(paths, f"Pushing {len(paths)} runs", transient=True):
        _push(path, build, folder)
    log.info("%d runs pushed; offline ones wait for `wandb sync` below %s", len(paths), folder)


def _push(path: Path, build: Callable[..., Any], folder: Path) -> None:
    name, digest, seed = path.absolute().parts[-3:]
    config, manifest = read_config(path), read_json(path / "manifest.json")
    table = read_table(next(path / name for name in TABLES if (path / name).exists()))
    logger = build(
        "push.wandb",
        save_dir=str(folder),
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
