"""The lifetime of one job: opens its folder, sets seeds, records failures, closes everything."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NoReturn

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from ood_lab.common.cpu_cores import out_of_shared_memory
from ood_lab.common.errors import Stopped, UserError
from ood_lab.common.files import DISK_FULL
from ood_lab.run.building.synthetic_datasets import MADE, chosen_unasked
from ood_lab.run.commandline.composition import running_overrides
from ood_lab.run.commandline.overrides import key_of
from ood_lab.run.commandline.process_start import is_main
from ood_lab.run.commandline.resolvers import register_resolvers
from ood_lab.run.commandline.terminal_output import configure_logging, fail, log_file
from ood_lab.run.job.launch import JOB_VARIABLE
from ood_lab.run.job.preparation import check_places, prepare
from ood_lab.run.job.process_ends import Terminated, death_of_another, terminable
from ood_lab.run.job.sweeps import FAILURES, record_failure
from ood_lab.run.job.workspace import OF_TRAINING, Workspace
from ood_lab.scripts import find_own_classes

log = logging.getLogger(__name__)
DDP_VARIABLES = ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@contextmanager
def job(cfg: DictConfig) -> Iterator[Workspace]:
    """Opens the run folder, sets seeds, yields the workspace, and leaves a clean process behind.

    Ask :attr:`Workspace.finished` first: a finished run is shown again and not repeated.
    """
    # A launcher of parallel jobs starts processes that never saw the command line.
    configure_logging()
    register_resolvers()
    find_own_classes()
    try:
        this = _open(cfg)
    except Exception as error:
        _fail(_explained(error), cfg)
    before = {name: os.environ[name] for name in DDP_VARIABLES if name in os.environ}
    script = HydraConfig.get().job.config_name
    os.environ[JOB_VARIABLE] = json.dumps([script, running_overrides()])
    failed = True
    try:
        with _watched(this):
            yield this
        failed = False
    except Exception as error:
        built = (this.__dict__.get(name) for name in ("trainer", "extractor"))
        died = death_of_another(error, filter(None, built))
        _fail(died or _explained(error), cfg, this.folder)
    finally:
        _leave_frameworks(failed)
        this.run_folder.close()
        # Lightning's DDP launcher leaves these; the next job of a sweep starts its own processes.
        for name in (*DDP_VARIABLES, JOB_VARIABLE):
            os.environ.pop(name, None)
        os.environ.update(before)


@contextmanager
def _watched(this: Workspace) -> Iterator[None]:
    """Keeps the log of a run that has work to do, and reports what interrupts it."""
    begins = this.is_main and not this.run_folder.done
    with log_file(this.folder) if begins else nullcontext():
        if begins:
            log.info("run folder: %s", this.folder)
            if recipe := this.record.recipe:
                log.info("recipe: %s", recipe)
            if made := chosen_unasked(this.settings):
                log.info(MADE.format(made))
        try:
            with terminable():
                yield
        except Stopped as stop:
            log.info("%s", stop)
        except SystemExit as stop:
            # On Ctrl-C during a training or a pass, Lightning exits with status 1, and ignores
            # the key from then on.
            if isinstance(stop, Terminated) or not isinstance(stop.__context__, KeyboardInterrupt):
                raise
            signal.signal(signal.SIGINT, signal.default_int_handler)
            raise KeyboardInterrupt from stop


def _open(cfg: DictConfig) -> Workspace:
    """The job with its run folder, which only the main process locks and writes."""
    this = prepare(cfg, running_overrides())
    if not this.done:
        check_places(this)
        this.check_settings()
        if this.builds:
            import lightning as L

            L.seed_everything(this.seed, workers=True, verbose=False)
    if this.is_main:
        this.run_folder.open(only_read=this.done)
        if this.cfg.debug:
            log.warning(
                "debug=true: two batches of every set and one epoch; the numbers mean nothing"
            )
        _warn_of_ignored(this)
        this.begin()
    return this


def _warn_of_ignored(this: Workspace) -> None:
    """Warns of settings on the command line that the task does not read."""
    ignored = this.unused - {"ckpt", *OF_TRAINING}
    for key in map(key_of, running_overrides()):
        if re.split(r"[./]", key)[0] in ignored:
            log.warning("%s changes nothing: this task does not read it", key)


def _leave_frameworks(failed: bool) -> None:
    """Closes any W&B run and process group that a job opened; loads neither package."""
    if "wandb" in sys.modules:
        import wandb

        wandb.finish(exit_code=int(failed))
    if "torch" in sys.modules:
        import torch

        if torch.distributed.is_initialized():  # the next job of a sweep has other processes
            torch.distributed.destroy_process_group()


def _explained(error: Exception) -> Exception:
    """Turns full disks or memory and impossible file names into a user error, wherever it was."""
    plain = out_of_shared_memory(error)
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        place = f" for {error.filename2 or error.filename}" if error.filename else ""
        plain = UserError(
            f"the disk is full{place}: make room, and the same command resumes; or set "
            "paths.outputs=DIR"
        )
    elif isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        plain = UserError(f"'{error.filename}': no file has a name of so many characters")
    if plain is not None:
        plain.__cause__ = error
    return plain or error


def _fail(error: Exception, cfg: DictConfig, folder: Path | None = None) -> NoReturn:
    """Ends a single run with the error's line; in a sweep, records it so that others continue."""
    if HydraConfig.get().mode == RunMode.RUN:
        if isinstance(error, UserError):
            fail(error)  # Hydra would add lines of its own
    elif is_main():
        file = Path(cfg.paths.outputs) / str(cfg.name) / FAILURES
        record_failure(file, running_overrides(), folder, error)
    raise error
