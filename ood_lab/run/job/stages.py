"""Staged experiments: a single command line that runs several others in turn.

An experiment's YAML may have a list ``stages``. Each of them is a command line that could be typed
by hand, so finished runs are skipped and the same command resumes where it was stopped:

    stages:
      - name: akg              # shown, and named by later stages
        script: train          # train.py or eval.py
        overrides: [...]       # may sweep; an item may be a list, as in "${study.trunk}"
        takes: [paths]         # keys of the user's own overrides that are passed on; all if absent
        best_of: [akg, nts]    # ckpt=<the run of these stages with the best validation accuracy>
        runs_of: [akg, nts]    # runs=[<the finished runs of these stages>]
        files_of: [task.previous=akg, model.weights=akg/model.pt]  # KEY=<run of a stage>/FILE

``study:`` next to it holds what the overrides share; ``skip: [NAME]`` skips stages.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from omegaconf import DictConfig
from omegaconf.errors import InterpolationToMissingValueError
from rich.console import Console
from rich.text import Text

from ood_lab.common.errors import UserError
from ood_lab.common.grouping import grouped
from ood_lab.common.hints import suggestion
from ood_lab.report.rendering.table import Cell, Head, Table, name_cell
from ood_lab.report.rendering.terminal import print_whole
from ood_lab.run.commandline.composition import composed, jobs_of, parsed, plain, shell_word
from ood_lab.run.commandline.line_checks import check_overrides
from ood_lab.run.commandline.override_values import key_of, quote, quoted, values_of
from ood_lab.run.commandline.terminal_output import INTERRUPTED
from ood_lab.run.job.preflight import validate
from ood_lab.run.job.preparation import prepare
from ood_lab.run.job.sigterm import TERMINATED
from ood_lab.schema.finished_run import FinishedRun

log = logging.getLogger(__name__)

SCRIPTS = ("train", "eval")
_KEYS = ("name", "script", "overrides", "takes", "best_of", "runs_of", "files_of")


@dataclass(frozen=True)
class Stage:
    """One command line of a staged experiment.

    Attributes:
        name: by which other stages refer to it.
        script: ``train`` or ``eval``.
        overrides: its command line, the user's overrides at the end.
        best_of: stages; the run with the best validation accuracy among theirs becomes ``ckpt``.
        runs_of: stages; their finished runs become ``runs``.
        files_of: ``KEY=STAGE/FILE``: a file in the only run of a stage; ``KEY=STAGE``: its folder.
    """

    name: str
    script: str
    overrides: tuple[str, ...]
    best_of: tuple[str, ...] = ()
    runs_of: tuple[str, ...] = ()
    files_of: tuple[str, ...] = ()

    def line(self, *more: str) -> list[str]:
        """Its command line, with ``-m`` where it is a sweep."""
        overrides = [*self.overrides, *more]
        return ["-m"] * any(o.is_sweep_override() for o in parsed(overrides)) + overrides


def own_overrides(overrides: Sequence[str]) -> list[str]:
    """The overrides that choose and describe a staged experiment rather than its stages."""
    return [o for o in overrides if key_of(o) in ("experiment", "skip") or _within(o, ["study"])]


def stages_of(script: str, overrides: Sequence[str]) -> list[Stage]:
    """The stages of the one experiment that a command line names; none where it has none.

    Raises:
        UserError: see :func:`read_stages`; or the command line of a stage does not compose.
    """
    named = parsed([o for o in overrides if key_of(o) == "experiment"])
    if len(named) != 1 or len(values_of(named[0])) != 1:
        return []
    own = own_overrides(overrides)
    check_overrides(script, own)
    stages = read_stages(composed(script, own), overrides)
    for stage in stages:
        try:
            check_overrides(stage.script, [*stage.overrides, *stage.files_of])
        except UserError as error:
            raise UserError(f"stage {stage.name}: {error}") from error
    return stages


def _giver(setting: str) -> str:
    return setting.partition("=")[2].split("/")[0]


def read_stages(cfg: DictConfig, overrides: Sequence[str]) -> list[Stage]:
    """The stages of an experiment, composed with its :func:`own_overrides`; none where it has none.

    The user's overrides go at the end of every command line, and replace the stage's own value of
    the same key.

    Raises:
        UserError: a value is missing, the list of stages is not one, no stage takes an override of
            the user, a stage whose file is wanted has several runs, or ``debug=true``.
    """
    if not cfg.get("stages"):
        return []
    if any(key_of(o) == "debug" and not o.lower().endswith("=false") for o in overrides):
        raise UserError(
            "debug=true is for one command line: give it to that of a stage; task=preflight checks "
            "all stages and starts none"
        )
    skipped = list(cfg.get("skip") or [])
    names = [str(node.name) for node in cfg.stages]
    if unknown := [name for name in skipped if name not in names]:
        raise UserError(f"skip={unknown[0]} is not a stage: choose among {', '.join(names)}")
    kept = [name for name in names if name not in skipped]
    own = own_overrides(overrides)
    users = [o for o in overrides if o not in own]
    taken = [key for node in cfg.stages for key in node.get("takes") or ()]
    for override in users if all("takes" in node for node in cfg.stages) else ():
        if not _within(override, taken):
            key = key_of(override)
            advice = suggestion(key, sorted({*taken, "study"}))
            raise UserError(f"no stage of this experiment takes {key}: {advice}")
    stages = [
        _stage(_resolved(node), users, kept, names) for node in cfg.stages if node.name in kept
    ]
    several = {stage.name for stage in stages if stage.line()[:1] == ["-m"]}
    for stage in stages:
        if wrong := several.intersection(map(_giver, stage.files_of)):
            advice = "give each setting a single value, such as seed=0"
            raise UserError(f"stage {stage.name} needs the only run of {wrong.pop()}: {advice}")
    return stages


def _resolved(node: DictConfig) -> dict[str, Any]:
    try:
        return plain(node, whole=True)
    except InterpolationToMissingValueError as error:
        missing = str(error).split("Missing mandatory value: ")[-1].split()[0]
        raise UserError(
            f"give a value to {missing}=..., or leave this stage out: skip=[{node.name}]"
        ) from error


def _stage(
    node: dict[str, Any], users: Sequence[str], kept: Sequence[str], names: Sequence[str]
) -> Stage:
    if wrong := [key for key in node if key not in _KEYS]:
        raise UserError(
            f"stage {node['name']} has the unknown key '{wrong[0]}': use {', '.join(_KEYS)}"
        )
    if node.get("script") not in SCRIPTS:
        raise UserError(f"stage {node['name']}: script is train or eval, not {node.get('script')}")
    earlier = names[: names.index(node["name"])]
    waits: dict[str, tuple[str, ...]] = {}
    files = [str(setting) for setting in node.get("files_of") or []]
    needed = {key: node.get(key) or [] for key in ("best_of", "runs_of")}
    for key, wanted in (needed | {key_of(f): [_giver(f)] for f in files}).items():
        if wrong := [name for name in wanted if name not in earlier]:
            raise UserError(
                f"stage {node['name']}: {key} names '{wrong[0]}', which is not an earlier stage"
            )
        waits[key] = tuple(name for name in wanted if name in kept)
        if wanted and not waits[key]:
            raise UserError(
                f"skip leaves nothing for stage {node['name']}: skip it, too: "
                f"skip=[...,{node['name']}]"
            )
    takes = node.get("takes")
    passed = [o for o in users if takes is None or _within(o, takes)]
    if waits["best_of"]:
        # Every seed of the best configuration has its own run, and is evaluated under that seed.
        passed = [o for o in passed if key_of(o) not in ("seed", "ckpt")]
    replaced = {key_of(o) for o in passed}
    own = [quoted(o) for o in _flat(node.get("overrides") or []) if key_of(o) not in replaced]
    of_stages = (waits["best_of"], waits["runs_of"])
    files = [setting for setting in files if key_of(setting) not in replaced]
    return Stage(node["name"], node["script"], (*own, *passed), *of_stages, tuple(files))


def _flat(items: Any) -> Iterator[str]:
    for item in items:
        if isinstance(item, list):
            yield from _flat(item)
        else:
            yield str(item)


def _within(override: str, keys: Sequence[str]) -> bool:
    key = key_of(override)
    return any(key == k or key.startswith(f"{k}.") for k in keys)


def validate_stages(stages: Sequence[Stage]) -> int:
    """``task=preflight`` for every stage; returns the number of jobs that cannot run.

    For a stage that waits for others, only the command line can be checked.
    """
    console = Console()
    built: dict[str, Any] = {}
    blocked = 0
    for number, stage in enumerate(stages, 1):
        _announce(console, stages, number, stage.line())
        givers = dict.fromkeys(map(_giver, stage.files_of))
        if others := [*stage.best_of, *stage.runs_of, *givers]:
            console.print(f"its command line is sound; it waits for {', '.join(others)}")
        else:
            blocked += validate(stage.script, stage.overrides, built)
    return blocked


def run_stages(stages: Sequence[Stage], run: Callable[[str, Sequence[str]], int]) -> int:
    """Runs the stages in order; a failure is noted, and stages that need its result are skipped.

    Like ``run``, which takes a script and its command line, it returns an exit status: 0 if all
    stages are finished, 130 or 143 after an interruption, else 1.
    """
    console = Console()
    folders: dict[str, list[Path]] = {}
    states: dict[str, tuple[str, float]] = {}
    for number, stage in enumerate(stages, 1):
        start = time.monotonic()
        try:
            line = stage.line(*results_for(stage, folders))
        except UserError as error:
            states[stage.name] = (f"left out: {error}", 0.0)
            continue
        _announce(console, stages, number, line)
        status = _status_of(run, stage.script, line)
        if status in (INTERRUPTED, TERMINATED):
            return status
        folders[stage.name] = _folders_of(stage.script, line)
        states[stage.name] = ("failed" if status else "finished", time.monotonic() - start)
    print_whole([_summary(stages, states)])
    return int(any(state != "finished" for state, _ in states.values()))


def _announce(console: Console, stages: Sequence[Stage], number: int, line: list[str]) -> None:
    stage = stages[number - 1]
    console.rule(f"stage {number} of {len(stages)}: {stage.name}")
    console.print(
        Text(f"python {stage.script}.py {' '.join(map(shell_word, line))}", "bold"), soft_wrap=True
    )


def _status_of(run: Callable[[str, Sequence[str]], int], script: str, line: Sequence[str]) -> int:
    try:
        return run(script, line)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except Exception:  # raised by a job; it ends this stage alone
        traceback.print_exc()
        return 1


def _folders_of(script: str, line: Sequence[str]) -> list[Path]:
    """The run folders of all jobs of a command line, whatever became of them."""
    found = []
    for overrides in jobs_of([o for o in line if o != "-m"]):
        try:
            found.append(prepare(composed(script, overrides), overrides).folder)
        except UserError as error:  # a job that could not start has none
            log.debug("no run folder: %s", error)
    return found


def results_for(stage: Stage, folders: dict[str, list[Path]]) -> list[str]:
    """The overrides that pass on the results of earlier stages.

    Raises:
        UserError: there is nothing to pass on.
    """
    given = []
    if stage.best_of:
        best = best_runs({name: folders.get(name, []) for name in stage.best_of})
        given.append(f"ckpt={','.join(quote(str(f)) for f in best)}")
    if stage.runs_of:
        found = [f for name in stage.runs_of for f in folders.get(name, []) if FinishedRun(f).done]
        if not found:
            raise UserError(f"none of {', '.join(stage.runs_of)} is finished")
        if left := [n for n in stage.runs_of if not _all_done(folders.get(n, []))]:
            log.warning("%s is made without unfinished runs of %s", stage.name, ", ".join(left))
        given.append(f"runs=[{','.join(quote(str(f)) for f in found)}]")
    for setting in stage.files_of:
        name, _, file = setting.partition("=")[2].partition("/")
        if not _all_done(folders.get(name, [])):
            raise UserError(f"{name} is not finished")
        if not (path := folders[name][0] / file).exists():
            raise UserError(f"{name} has not written {path}")
        given.append(f"{key_of(setting)}={quote(str(path))}")
    return given


def best_runs(folders: dict[str, list[Path]]) -> list[Path]:
    """All seeds of the configuration with the best validation accuracy, the mean over its seeds.

    The test set plays no part. The first of equals wins. All runs of the candidate stages must be
    finished: the best of some might not be the best of all.

    Raises:
        UserError: a stage is not finished, or a run does not state its validation accuracy.
    """
    if waiting := [name for name, runs in folders.items() if not _all_done(runs)]:
        raise UserError(f"the best cannot be chosen before {', '.join(waiting)} is finished")
    runs = [run for found in folders.values() for run in found]
    accuracies = grouped((run.parent, _val_accuracy(run)) for run in runs)
    means = {place: fmean(values) for place, values in accuracies.items()}
    ranking = sorted(means, key=lambda place: means[place], reverse=True)
    shown = ", ".join(f"{place.parent.name} {means[place]:.1%}" for place in ranking)
    log.info("best by validation accuracy: %s (%s)", ranking[0], shown)
    return [run for run in runs if run.parent == ranking[0]]


def _all_done(runs: Sequence[Path]) -> bool:
    return bool(runs) and all(FinishedRun(run).done for run in runs)


def _val_accuracy(run: Path) -> float:
    value = FinishedRun(run).record.val_accuracy
    if value is None:
        raise UserError(
            f"{run}/manifest.json has no val_accuracy: only a training that keeps its best epoch "
            "by val/acc (callbacks=default) has one; force=true repeats it"
        )
    return value


def _summary(stages: Sequence[Stage], states: dict[str, tuple[str, float]]) -> Table:
    rows = []
    for stage in stages:
        state, seconds = states[stage.name]
        name = name_cell(stage.name, tone="" if state == "finished" else "bad")
        rows.append([name, name_cell(state), Cell(f"{seconds:.0f}", seconds)])
    return Table("stages", [Head("stage"), Head("state"), Head("seconds")], rows)
