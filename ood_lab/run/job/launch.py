"""Handling of a script's command line, from the first word to the exit status."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from rich.console import Console

from ood_lab.common.errors import UserError, one_line
from ood_lab.run.building.checkpoints import is_run
from ood_lab.run.commandline.composition import jobs_of
from ood_lab.run.commandline.line_checks import check_line, read_arguments
from ood_lab.run.commandline.overrides import key_of, readable, values_of
from ood_lab.run.commandline.printed_commands import shell_word
from ood_lab.run.commandline.process_start import quick_exit
from ood_lab.run.commandline.resolvers import register_resolvers
from ood_lab.run.commandline.terminal_output import (
    ENDED,
    INTERRUPTED,
    INTERRUPTION,
    TERMINATED,
    Terminated,
    configure_logging,
    fail,
    stop,
)
from ood_lab.run.job.preflight import validate, validate_stages
from ood_lab.run.job.preparation import folder_of
from ood_lab.run.job.stages import StageLine, stages_of
from ood_lab.run.job.sweeps import run_sweep
from ood_lab.scripts import CONF, OWN_CONF, find_own_classes, script_main

#: Holds the script and overrides of the running job, for the other ranks of a DDP job.
JOB_VARIABLE = "OOD_LAB_JOB"
#: Asks for a dry build of all jobs of a line.
PREFLIGHT = "task=preflight"


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
        words, arguments = read_line(line)
        return _run(main or script_main(script), script, words, arguments)
    except UserError as error:
        fail(error)
    except KeyboardInterrupt:
        stop(INTERRUPTION, INTERRUPTED)
    except Terminated:
        stop(ENDED, TERMINATED)


def _run(main: Callable[..., Any], script: str, line: Sequence[str], arguments: Namespace) -> int:
    overrides = [override for override in arguments.overrides if override != PREFLIGHT]
    dry = len(overrides) < len(arguments.overrides)
    only_jobs = not _other_flags(arguments)
    if arguments.shell_completion:  # what follows is Hydra's: install=bash, query=bash
        _call(main, line)
        return 0
    if only_jobs and (stages := stages_of(script, overrides)):
        return min(validate_stages(stages), 1) if dry else run_stages(stages)
    multirun = arguments.multirun or any(o.startswith("hydra.mode=") for o in overrides)
    cfg = check_line(script, overrides, sweep=multirun or dry or not only_jobs)
    if arguments.help:
        # Hydra would print the same text, but first lists all groups of conf/ for a template that
        # does not ask for them, which takes longer than the rest.
        print(HydraConfig.get().help.template)
        return 0
    if dry:
        return min(validate(script, overrides), 1)
    flags = [argument for argument in line if argument not in arguments.overrides]
    if arguments.multirun and only_jobs:
        return run_sweep(lambda: _call(main, [*flags, *overrides]), script, overrides)
    in_file = HydraConfig.get().mode == RunMode.MULTIRUN
    of_hydra = any(override.startswith("hydra.") for override in overrides)
    try:
        if multirun or in_file or of_hydra or not only_jobs:
            _call(main, [*flags, *overrides])
        else:  # Hydra would compose the same twice more
            main(cfg)
    except Exception as error:
        if only_jobs and not isinstance(error, HydraException):
            raise
        raise UserError(one_line(error)) from error
    return 0


def run_stages(stages: Sequence[StageLine]) -> int:
    """Runs the stages in order, without those that need one that failed; returns a status."""
    folders, states = dict[str, list[Path]](), dict[str, str]()
    for number, stage in enumerate(stages, 1):
        Console().rule(f"stage {number} of {len(stages)}: {stage.name}")
        try:
            script, overrides, _ = stage.line(stage.results(folders))
        except UserError as error:
            states[stage.name] = f"left out: {error}"
            continue
        if (status := _run_stage(script, overrides)) > 128:  # ended by a signal
            return status
        states[stage.name] = "failed" if status else "finished"
        folders[stage.name] = [folder_of(script, job) for job in jobs_of(overrides)]
    print("\n".join(f"{name} {state}" for name, state in states.items()))
    return int(any(state != "finished" for state in states.values()))


def _run_stage(script: str, overrides: list[str]) -> int:
    """Prints and runs the command line of a stage; an error of one of its jobs ends only it."""
    line = ["-m"] * (len(jobs_of(overrides)) > 1) + overrides
    print(f"python {script}.py {' '.join(map(shell_word, line))}")
    try:
        return run_line(script, line)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except Exception:
        traceback.print_exc()
        return 1


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


def read_line(line: Sequence[str]) -> tuple[list[str], Namespace]:
    """The words of a line as Hydra reads them, and what they mean.

    Keys of the data need not exist where the data are those of the run whose weights are evaluated.

    Raises:
        UserError: see :func:`~ood_lab.run.commandline.line_checks.read_arguments`.
    """
    # An unset variable of a shell is an empty argument.
    words = [readable(word) for word in line if word.strip()]
    # Hydra reads overrides on one side of a flag only.
    words.sort(key=lambda word: word not in ("-m", "--multirun"))
    arguments = read_arguments(words)
    keys = {override: key_of(override) for override in arguments.overrides}
    runs = [str(path) for o, key in keys.items() if key == "ckpt" for path in values_of(o)]
    if "data" not in keys.values() and any(map(is_run, runs)):
        opened = {override: f"++{override}" for override in keys if override.startswith("data.")}
        words = [opened.get(word, word) for word in words]
        arguments.overrides = [opened.get(word, word) for word in arguments.overrides]
    return words, arguments


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
