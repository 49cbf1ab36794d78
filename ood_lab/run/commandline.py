"""The command line: what a script does with it from the first word to the exit status."""

from __future__ import annotations

import inspect
import json
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig

from ood_lab.errors import UserError
from ood_lab.run.compose import composed
from ood_lab.run.help import help_page
from ood_lab.run.line import check_overrides, is_strict, read_arguments
from ood_lab.run.pipeline import (
    Stage,
    is_one_experiment,
    own_overrides,
    read_stages,
    run_stages,
    validate_stages,
)
from ood_lab.run.resolvers import register_resolvers
from ood_lab.run.sweep import run_sweep
from ood_lab.run.terminal import configure_logging, fail, interrupted, one_line
from ood_lab.run.validate import asks_for_validation, validate
from ood_lab.run.values import quoted
from ood_lab.scripts import CONF

#: Keys under these prefixes are the user's to invent (`data.ood.mine=DIR`).
OPEN_KEYS = (
    *("data.ood.", "data.ood_groups.", "data.ood_val.", "data.csid."),
    *("model.net.", "model.kwargs."),
)
#: Holds the overrides of the job that is running, for the other ranks of a DDP job.
JOB_VARIABLE = "OOD_LAB_JOB"


def launch(main: Callable[[], Any], config_name: str) -> None:
    """Runs a ``@hydra.main`` function: checks the command line first, reports errors in one line.

    Exits with status 1 and a single line for a :class:`UserError`, with 130 when the user stops
    it; other exceptions keep their traceback.
    """
    configure_logging()
    register_resolvers()
    # Hydra then raises what a job raised instead of printing a shortened traceback.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        sys.argv[1:] = rewrite(sys.argv[1:])
        status = _run(main, config_name, read_arguments(sys.argv[1:]))
    except UserError as error:
        fail(error)
    except KeyboardInterrupt:
        interrupted()
    if status:
        sys.exit(status)


def _run(main: Callable[[], Any], config_name: str, arguments: Namespace) -> int:
    """Does what the command line asks for; returns the exit status."""
    overrides = [o for o in arguments.overrides if not asks_for_validation(o)]
    dry = len(overrides) < len(arguments.overrides)
    only_jobs = not _other_flags(arguments)
    if only_jobs and (stages := _stages(config_name, overrides)):
        return min(validate_stages(stages), 1) if dry else run_stages(stages)
    multirun = arguments.multirun or any(o.startswith("hydra.mode=") for o in overrides)
    one_job = only_jobs and not (dry or multirun)
    own = [o for o in overrides if not o.removeprefix("++").startswith(OPEN_KEYS)]
    if not (one_job and is_strict(own)):  # else Hydra composes once, for the job
        check_overrides(config_name, overrides, sweep=not one_job)
    if arguments.help:
        print(help_page())
        return 0
    if dry:
        return min(validate(config_name, overrides), 1)
    if arguments.multirun and only_jobs:
        return run_sweep(main, config_name, overrides)
    with _errors_in_one_line(every=not only_jobs):
        if one_job:
            _run_one_job(main, config_name, overrides)
        else:
            main()
    return 0


def _other_flags(arguments: Namespace) -> bool:
    """Whether Hydra is asked for something else than to run jobs, as by ``--cfg job``."""
    flags = {key: value for key, value in vars(arguments).items() if key != "overrides"}
    return any(value for key, value in flags.items() if key not in ("multirun", "run"))


@contextmanager
def _errors_in_one_line(every: bool) -> Iterator[None]:
    """Hydra's own complaints, and with ``every`` all errors, become one line."""
    try:
        yield
    except Exception as error:
        if every or isinstance(error, HydraException):
            raise UserError(one_line(error)) from error
        raise


def _run_one_job(main: Callable[[], Any], script: str, overrides: Sequence[str]) -> None:
    """What ``main()`` does with the command line of one job.

    ``main`` itself composes the whole configuration once more, to see whether a file sets
    ``hydra.mode``. Where one asks for a multirun, as an experiment of the user's may, it is called.

    Raises:
        UserError: Hydra cannot compose this line, for a reason that :func:`check_overrides` knows.
    """
    search_path = create_config_search_path(str(CONF))
    hydra = Hydra.create_main_hydra2(task_name=script, config_search_path=search_path)
    begun = False

    def job(cfg: DictConfig) -> None:
        nonlocal begun
        begun = True
        inspect.unwrap(main)(cfg)

    try:
        hydra.run(script, job, list(overrides))
    except Exception as error:
        if not begun:
            check_overrides(script, overrides, sweep=False)
            if isinstance(error, AssertionError):  # of hydra.run: the mode is not RUN
                main()
                return
        raise
    finally:
        GlobalHydra.instance().clear()


def _stages(config_name: str, overrides: Sequence[str]) -> list[Stage]:
    """The stages of the chosen experiment, each with a command line that composes."""
    if not is_one_experiment(overrides):
        return []
    own = own_overrides(overrides)
    check_overrides(config_name, own)
    stages = read_stages(composed(config_name, own), overrides)
    for stage in stages:
        try:
            check_overrides(stage.script, stage.overrides)
        except UserError as error:
            raise UserError(f"stage {stage.name}: {error}") from error
    return stages


def rewrite(line: Sequence[str]) -> list[str]:
    """Opens the keys of :data:`OPEN_KEYS`, quotes paths, and narrows a DDP child to its one job.

    Lightning starts the other ranks with the command line of the first one. In a multirun that
    line describes the whole sweep, so a child takes the overrides of the running job instead.
    """
    # An unset variable of a shell is an empty argument.
    arguments = [argument.strip() for argument in line if argument.strip()]
    job = os.environ.get(JOB_VARIABLE)
    if job and int(os.environ.get("LOCAL_RANK", 0)) > 0:
        added = [a for a in arguments if a.startswith("hydra.")]  # by Lightning: run dir, name
        arguments = json.loads(job) + added
    # Hydra reads overrides on one side of a flag only.
    arguments.sort(key=lambda a: a not in ("-m", "--multirun"))
    opened = [f"++{a}" if a.startswith(OPEN_KEYS) else a for a in arguments]
    return [a if a.startswith("-") else quoted(a) for a in opened]
