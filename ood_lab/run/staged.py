"""Runs the stages of an experiment, or looks at all of them without running any."""

from __future__ import annotations

import logging
import shlex
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ood_lab.errors import UserError
from ood_lab.io import read_json
from ood_lab.run.compose import composed
from ood_lab.run.prepare import prepare
from ood_lab.run.stages import Stage
from ood_lab.run.terminal import INTERRUPTED
from ood_lab.run.validate import jobs_of, validate
from ood_lab.run.values import quote
from ood_lab.scripts import run_script

log = logging.getLogger(__name__)


def validate_stages(stages: Sequence[Stage]) -> int:
    """``task=validate`` for every stage; returns the number of jobs that cannot run.

    Of a stage that waits for others only the command line is known.
    """
    console = Console()
    built: dict[str, Any] = {}
    blocked = 0
    for number, stage in enumerate(stages, 1):
        _announce(console, stages, number, stage.line())
        if stage.waits_for:
            console.print(f"its command line is sound; it waits for {', '.join(stage.waits_for)}")
        else:
            blocked += validate(stage.script, stage.overrides, built)
    return blocked


def run_stages(stages: Sequence[Stage]) -> int:
    """Runs the stages in order; one that fails is noted, those that need it are left out.

    Returns:
        Exit status: 0 where all stages are finished, 130 after an interruption, else 1.
    """
    console = Console()
    folders: dict[str, list[Path]] = {}
    states: dict[str, tuple[str, float]] = {}
    for number, stage in enumerate(stages, 1):
        start = time.monotonic()
        try:
            line = stage.line(*_results_for(stage, folders))
        except UserError as error:
            log.error("stage %s is left out: %s", stage.name, error)
            states[stage.name] = ("left out", 0.0)
            continue
        _announce(console, stages, number, line)
        status = _call(stage.script, line)
        if status == INTERRUPTED:
            return status
        folders[stage.name] = _folders_of(stage.script, line)
        states[stage.name] = ("failed" if status else "finished", time.monotonic() - start)
    console.print(_summary(stages, states))
    return int(any(state != "finished" for state, _ in states.values()))


def _announce(console: Console, stages: Sequence[Stage], number: int, line: list[str]) -> None:
    stage = stages[number - 1]
    console.rule(f"stage {number} of {len(stages)}: {stage.name}")
    console.print(Text(f"python {stage.script}.py {shlex.join(line)}", "bold"), soft_wrap=True)


def _call(script: str, line: list[str]) -> int:
    """``python <script>.py <line>`` in this process, which has imported everything already."""
    before = sys.argv
    sys.argv = [f"{script}.py", *line]
    try:
        run_script(script)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except Exception:  # of a job; it ends this stage alone
        traceback.print_exc()
        return 1
    finally:
        sys.argv = before
    return 0


def _folders_of(script: str, line: Sequence[str]) -> list[Path]:
    """The run folders of all jobs of a command line, whatever became of them."""
    found = []
    for overrides in jobs_of([o for o in line if o != "-m"]):
        try:
            found.append(prepare(composed(script, overrides), overrides).folder)
        except UserError as error:  # a job that could not begin has none
            log.debug("no run folder: %s", error)
    return found


def _results_for(stage: Stage, folders: dict[str, list[Path]]) -> list[str]:
    """The overrides that hand over what earlier stages made.

    Raises:
        UserError: there is nothing to hand over.
    """
    given = []
    if stage.best_of:
        best = best_runs({name: folders.get(name, []) for name in stage.best_of})
        given.append(f"ckpt={','.join(quote(str(f)) for f in best)}")
    if stage.runs_of:
        found = [f for name in stage.runs_of for f in folders.get(name, []) if _done(f)]
        if not found:
            raise UserError(f"none of {', '.join(stage.runs_of)} is finished")
        if left := [n for n in stage.runs_of if not all(map(_done, folders.get(n) or [Path()]))]:
            log.warning("%s is made without unfinished runs of %s", stage.name, ", ".join(left))
        given.append(f"runs=[{','.join(quote(str(f)) for f in found)}]")
    return given


def best_runs(folders: dict[str, list[Path]]) -> list[Path]:
    """All seeds of the configuration with the best validation accuracy, the mean over its seeds.

    The test set has no say. Of equals the first wins.

    Args:
        folders: run folders of each stage to choose from, all of which must be finished: the
            best of some would not be the best of all.

    Raises:
        UserError: a stage is not finished, or a run does not say its validation accuracy.
    """
    if waiting := [name for name, runs in folders.items() if not (runs and all(map(_done, runs)))]:
        raise UserError(f"the best cannot be chosen before {', '.join(waiting)} is finished")
    accuracies: dict[Path, list[float]] = {}
    runs = [run for found in folders.values() for run in found]
    for run in runs:
        accuracies.setdefault(run.parent, []).append(_val_accuracy(run))
    means = {place: fmean(values) for place, values in accuracies.items()}
    best = max(means, key=lambda place: means[place])
    ranking = sorted(means, key=lambda place: means[place], reverse=True)
    shown = ", ".join(f"{place.parent.name} {means[place]:.1%}" for place in ranking)
    log.info("best by validation accuracy: %s (%s)", best, shown)
    return [run for run in runs if run.parent == best]


def _val_accuracy(run: Path) -> float:
    value = read_json(run / "manifest.json").get("val_accuracy")
    if value is None:
        raise UserError(
            f"{run}/manifest.json has no val_accuracy: only a training that keeps its best epoch "
            "by val/acc (callbacks=default) has one; force=true repeats it"
        )
    return float(value)


def _done(folder: Path) -> bool:
    return (folder / "DONE").exists()


def _summary(stages: Sequence[Stage], states: dict[str, tuple[str, float]]) -> Table:
    table = Table(title="stages", title_justify="left", box=None, padding=(0, 1))
    for heading in ("stage", "state", "seconds"):
        table.add_column(heading, justify="right" if heading == "seconds" else "left")
    for stage in stages:
        state, seconds = states[stage.name]
        style = None if state == "finished" else "red"
        table.add_row(stage.name, state, f"{seconds:.0f}", style=style)
    return table
