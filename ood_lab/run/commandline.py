"""The command line: what a script does with it from the first word to the exit status."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import Any

from hydra.errors import HydraException

from ood_lab.errors import UserError
from ood_lab.run.compose import composed
from ood_lab.run.help import help_page
from ood_lab.run.line import check_overrides, read_arguments
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
    check_overrides(config_name, overrides, sweep=dry or arguments.multirun or not only_jobs)
    if arguments.help:
        print(help_page())
        return 0
    if dry:
        return min(validate(config_name, overrides), 1)
    if arguments.multirun and only_jobs:
        return run_sweep(main, config_name, overrides)
    _call(main, any_error=not only_jobs)
    return 0


def _other_flags(arguments: Namespace) -> bool:
    """Whether Hydra is asked for something else than to run jobs, as by ``--cfg job``."""
    flags = {key: value for key, value in vars(arguments).items() if key != "overrides"}
    return any(value for key, value in flags.items() if key not in ("multirun", "run"))


def _call(main: Callable[[], Any], any_error: bool = False) -> None:
    """Hands over to Hydra; its own complaints, and with ``any_error`` all, become one line."""
    try:
        main()
    except Exception as error:
        if any_error or isinstance(error, HydraException):
            raise UserError(one_line(error)) from error
        raise


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
