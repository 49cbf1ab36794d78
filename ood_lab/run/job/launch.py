"""Handling of a script's command line, from the first word to the exit status."""

from __future__ import annotations

import json
import os
import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode

from ood_lab.common.errors import UserError
from ood_lab.run.building import checkpoints
from ood_lab.run.commandline.composition import composed
from ood_lab.run.commandline.key_suggestions import OPEN_KEYS
from ood_lab.run.commandline.line_checks import (
    check_headers,
    check_overrides,
    check_secrets,
    read_arguments,
)
from ood_lab.run.commandline.other_names import with_own_names
from ood_lab.run.commandline.override_values import key_of, paths_of, quoted, trimmed
from ood_lab.run.commandline.process_start import quick_exit
from ood_lab.run.commandline.resolvers import register_resolvers
from ood_lab.run.commandline.terminal_output import (
    configure_logging,
    fail,
    interrupted,
    one_line,
    terminated,
)
from ood_lab.run.job.preflight import asks_for_validation, validate
from ood_lab.run.job.sigterm import Terminated
from ood_lab.run.job.stages import run_stages, stages_of, validate_stages
from ood_lab.run.job.sweeps import run_sweep
from ood_lab.scripts import CONF, OWN_CONF, find_own_classes, script_main

#: Holds the script and overrides of the running job, for the other ranks of a DDP job.
JOB_VARIABLE = "OOD_LAB_JOB"


def launch(main: Callable[..., Any], config_name: str) -> None:
    """Runs a ``@hydra.main`` function: checks the command line first, reports errors in one line.

    Exits with status 1 and a single line for a :class:`UserError`, with 130 when the user stops
    it, with 143 when SIGTERM does; other exceptions keep their traceback.
    """
    is_program = sys.argv[0] in sys.orig_argv  # else a notebook's %run, or a test, lives on
    if is_program and sys.getfilesystemencoding() != "utf-8":
        _restart_in_utf8()
    configure_logging()
    register_resolvers()
    find_own_classes()
    # Hydra then raises what a job raised instead of printing a shortened traceback.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    if is_program and {"--help", "--cfg"} & set(sys.argv) and hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # head may close the pipe it prints to
    with quick_exit() if is_program else nullcontext():
        script, line = _of_rank(config_name, sys.argv[1:])
        if status := run_line(script, line, main if script == config_name else None):
            sys.exit(status)


def _restart_in_utf8() -> None:
    """Names of files are UTF-8 wherever data come from; only the terminal has a code of its own."""
    os.environ["PYTHONUTF8"] = "1"
    os.environ["PYTHONIOENCODING"] = f"{sys.stdout.encoding}:replace"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def run_line(script: str, line: Sequence[str], main: Callable[..., Any] | None = None) -> int:
    """Does what ``<script>.py <line>`` asks for, in this process; returns the exit status.

    The script's own ``main`` is loaded where none is given.

    Raises:
        SystemExit: after an error, which has been printed, or when it was stopped.
    """
    try:
        rewritten = [with_own_names(word) for word in rewrite(line)]
        arguments = read_arguments(rewritten)
        return _run(main or script_main(script), script, rewritten, arguments)
    except UserError as error:
        fail(error)
    except KeyboardInterrupt:
        interrupted()
    except Terminated:
        terminated()


def _run(main: Callable[..., Any], script: str, line: Sequence[str], arguments: Namespace) -> int:
    if arguments.shell_completion:  # what follows is Hydra's: install=bash, query=bash
        _call(main, line)
        return 0
    check_secrets(arguments.overrides)
    overrides = [o for o in arguments.overrides if not asks_for_validation(o)]
    dry = len(overrides) < len(arguments.overrides)
    check_headers(overrides)
    only_jobs = not _other_flags(arguments)
    if only_jobs and (stages := stages_of(script, overrides)):
        return min(validate_stages(stages), 1) if dry else run_stages(stages, run_line)
    multirun = arguments.multirun or any(o.startswith("hydra.mode=") for o in overrides)
    check_overrides(script, overrides, sweep=multirun or dry or not only_jobs)
    if arguments.help:
        # Hydra would print the same text, but first lists all groups of conf/ for a template that
        # does not ask for them, which takes longer than the rest.
        print(HydraConfig.get().help.template)
        return 0
    if dry:
        return min(validate(script, overrides), 1)
    flags = [argument for argument in line if argument not in arguments.overrides]
    hydra = partial(_call, main, [*flags, *overrides])
    if arguments.multirun and only_jobs:
        return run_sweep(hydra, script, overrides)
    by_hydra = multirun or not only_jobs or any(o.startswith("hydra.") for o in overrides)
    try:
        cfg = None if by_hydra else composed(script, overrides)
        if cfg is None or HydraConfig.get().mode == RunMode.MULTIRUN:  # as a file may ask for
            hydra()
        else:  # Hydra would compose the same twice more
            main(cfg)
    except Exception as error:
        if only_jobs and not isinstance(error, HydraException):
            raise
        raise UserError(one_line(error)) from error
    return 0


def _call(main: Callable[..., Any], line: Sequence[str]) -> None:
    """Runs a ``@hydra.main`` function with these arguments, wherever it was defined."""
    folders = ["--config-path", str(CONF)]
    if OWN_CONF in os.environ and not any(a.startswith(("--config-dir", "-cd")) for a in line):
        folders += ["--config-dir", os.environ[OWN_CONF]]  # a stage's line does not repeat it
    typed = sys.argv
    sys.argv = [typed[0], *folders, *line]
    try:
        main()
    finally:
        sys.argv = typed


def _other_flags(arguments: Namespace) -> bool:
    """True if Hydra is to do something other than run jobs, as by ``--cfg job``."""
    of_jobs = ("overrides", "multirun", "run", "config_dir")
    return any(value for key, value in vars(arguments).items() if key not in of_jobs)


def rewrite(line: Sequence[str]) -> list[str]:
    """Opens the keys of :func:`_open_keys`, and quotes paths."""
    # An unset variable of a shell is an empty argument.
    arguments = [trimmed(argument) for argument in line if argument.strip()]
    # Hydra reads overrides on one side of a flag only.
    arguments.sort(key=lambda a: a not in ("-m", "--multirun"))
    keys = _open_keys(arguments)
    opened = [f"++{a}" if a.startswith(keys) else a for a in arguments]
    return [a if a.startswith("-") else quoted(a) for a in opened]


def _open_keys(overrides: Sequence[str]) -> tuple[str, ...]:
    """Prefixes of keys that need not exist in the configuration that the line composes.

    Keys of the data exist in the run whose weights are evaluated, from which they are inherited.
    """
    runs = [path for o in overrides if key_of(o) == "ckpt" for path in paths_of(o)]
    inherits = any(checkpoints.is_run(path) for path in runs)
    chosen = any(key_of(override) == "data" for override in overrides)
    return (*OPEN_KEYS, *(["data."] if inherits and not chosen else []))


def _of_rank(script: str, line: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Script and command line of this process; any further DDP rank takes the first one's job.

    Lightning starts it with the command line of the first one, which in a sweep or in an
    experiment with stages describes them all.
    """
    job = os.environ.get(JOB_VARIABLE)
    if not job or int(os.environ.get("LOCAL_RANK", 0)) == 0:
        return script, line
    script, overrides = json.loads(job)
    added = [a for a in line if a.startswith("hydra.")]  # by Lightning: run dir, name
    return script, [*overrides, *added]
