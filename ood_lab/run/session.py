"""The span of one job: its folder opened, seeds set, failures noted, everything closed again."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import lightning as L
import wandb
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    InterpolationResolutionError,
    InterpolationToMissingValueError,
    MissingMandatoryValue,
)

from ood_lab.errors import UserError
from ood_lab.run import checkpoints
from ood_lab.run.commandline import JOB_VARIABLE, fail
from ood_lab.run.failures import record_failure
from ood_lab.run.folder import RunFolder, config_hash
from ood_lab.run.job import Job

DDP_VARIABLES = ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@contextmanager
def job(cfg: DictConfig) -> Iterator[Job]:
    """Opens the run folder, seeds, yields the :class:`Job`, and leaves a clean process behind.

    Ask :attr:`Job.finished` first: a finished run is shown again and not repeated.
    """
    try:
        this = _open(cfg)
    except UserError as error:
        _fail(error)
    before = {name: os.environ.get(name) for name in DDP_VARIABLES}
    os.environ[JOB_VARIABLE] = json.dumps(list(HydraConfig.get().overrides.task))
    failed = True
    try:
        yield this
        failed = False
    except Exception as error:
        _fail(error, this)
    finally:
        wandb.finish(exit_code=int(failed))
        this.run_folder.close()
        _restore(before)


def _open(cfg: DictConfig) -> Job:
    """The job with its run folder, which only the main process locks and writes."""
    cfg = checkpoints.inherit(cfg, list(HydraConfig.get().overrides.task))
    try:
        settings = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        raise UserError(f"give a value to {error.full_key}=...") from error
    except InterpolationToMissingValueError as error:
        found = re.search(r"Missing mandatory value: (\S+)", str(error))
        raise UserError(f"give a value to {found[1] if found else error}=...") from error
    except InterpolationResolutionError as error:
        raise UserError(str(error).splitlines()[0]) from error
    assert isinstance(settings, dict)
    stamp = checkpoints.stamp(cfg.ckpt)
    digest = config_hash({**{str(k): v for k, v in settings.items()}, "ckpt_stamp": stamp})
    folder = RunFolder(Path(cfg.paths.outputs) / str(cfg.name) / digest / f"seed={cfg.seed}")
    L.seed_everything(int(cfg.seed), workers=True, verbose=False)
    this = Job(cfg, folder)
    if this.is_main:
        folder.open(force=bool(cfg.force))
        if not folder.done:
            folder.write("config.yaml", OmegaConf.to_yaml(cfg, resolve=True))
    return this


def _fail(error: Exception, this: Job | None = None) -> NoReturn:
    """Ends a single run with the error's line; in a sweep, notes it down for the others go on."""
    if HydraConfig.get().mode == RunMode.RUN:
        if isinstance(error, UserError):
            fail(error)  # Hydra would add lines of its own
    elif this is not None and this.is_main:
        overrides = list(HydraConfig.get().overrides.task)
        file = Path(this.cfg.paths.outputs) / str(this.cfg.name) / "failures.csv"
        record_failure(file, overrides, this.folder, error)
    raise error


def _restore(variables: dict[str, str | None]) -> None:
    """Undoes what Lightning's DDP launcher left, so the next job of a sweep starts its own."""
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    os.environ.pop(JOB_VARIABLE, None)
