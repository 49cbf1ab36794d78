"""``task=preflight``: a dry build of every job of a sweep that lists all problems at once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from ood_lab.common.english import counted
from ood_lab.common.errors import UserError, one_line
from ood_lab.run.building import checkpoints
from ood_lab.run.commandline.composition import composed, jobs_of
from ood_lab.run.commandline.terminal_output import JobRow, print_jobs
from ood_lab.run.job.preparation import prepare
from ood_lab.run.job.stages import StageLine
from ood_lab.run.job.training import classifier
from ood_lab.run.job.workspace import Workspace


def validate(config_name: str, overrides: Sequence[str]) -> int:
    """Does a dry build of all jobs and prints what is missing; returns the number of blocked jobs.

    Data is read and checked as in a run, weights are loaded, and detectors, Trainer and module are
    built; nothing is trained, extracted or written. Objects that several jobs share are built once.

    Args:
        config_name: ``train`` or ``eval``.
        overrides: the command line of the sweep, without ``task=preflight``.
    """
    lines = jobs_of(overrides)
    built: dict[str, Any] = {}
    console = Console()
    jobs = [
        _dry_build(config_name, line, built)
        for line in track(
            lines, f"Validating {counted(len(lines), 'job')}", console=console, transient=True
        )
    ]
    print_jobs(lines, jobs)
    blocked = sum(bool(job.problems) for job in jobs)
    console.print(f"{len(jobs) - blocked} of {len(jobs)} jobs can run; nothing was started")
    return blocked


def validate_stages(stages: Sequence[StageLine]) -> int:
    """The same for every stage of an experiment that needs no other; the lines are checked."""
    blocked = 0
    for stage in stages:
        script, overrides, needs = stage.line({})
        Console().rule(stage.name)
        if needs:
            waits = ", ".join(dict.fromkeys(name for _, *names in needs for name in names))
            Console().print(f"its command line is sound; it waits for {waits}")
        else:
            blocked += validate(script, overrides)
    return blocked


def _dry_build(config_name: str, overrides: list[str], built: dict[str, Any]) -> JobRow:
    cfg = composed(config_name, overrides)
    try:
        job = prepare(cfg, overrides)
    except UserError as error:
        problems = [str(error)]
        if cfg.ckpt:  # nothing is inherited, but the data on the command line can be checked
            cfg.ckpt = None
            problems += _problem(lambda: _data(prepare(cfg, overrides), built))
        return JobRow({"state": f"{len(problems)} missing", "run folder": ""}, problems)
    state, problems = "done", _problem(lambda: job.done)
    if not (problems or job.done):
        problems = _obstacles(config_name, job, built)
        resumes = not problems and checkpoints.to_resume(job.folder) and not job.changes
        state = "resumes" if resumes else "new"
    if problems:
        state = f"{len(problems)} missing"
    return JobRow({"state": state, "run folder": str(job.folder)}, problems)


def _obstacles(config_name: str, job: Workspace, built: dict[str, Any]) -> list[str]:
    """Problems that would stop a job that has work to do."""
    found = _problem(partial(_clip_files, job))
    if job.trains or "data" in job.uses:
        found += _problem(partial(_data, job, built))
    problems = [
        *_problem(partial(_check_writable, job.folder)),
        *_problem(job.check_settings),
        *found,
        *_problem(lambda: checkpoints.to_resume(job.folder)),
    ]
    network: list[Callable[[], Any]] = []
    if config_name == "train" and job.trains:
        network = [partial(classifier, job)]
    elif config_name == "eval" and "backbone" in job.uses:
        network = [partial(_backbone, job, built)]
    for step in (*network, lambda: job.task.check(job)):
        if not found:  # both need the data, the second the network too
            found = _problem(step)
            problems += found
    return problems


def _problem(step: Callable[[], Any]) -> list[str]:
    try:
        step()
    except UserError as error:
        return str(error).splitlines()
    except Exception as error:
        return [f"{type(error).__name__}: {one_line(error)}"]
    return []


def _data(job: Workspace, built: dict[str, Any]) -> None:
    """Builds the data, once for all jobs that share it; all missing sets are one error."""
    node = {"data": job.settings.get("data"), "synthetic_ood": job.synthetic_ood}
    key = "data" + json.dumps(node, sort_keys=True, default=str)
    if key not in built:
        data = job.new_data()
        missing = {name: path for name, path in data.sources.items() if not path.exists()}
        if missing:
            raise UserError("\n".join(f"data {n}: {p} does not exist" for n, p in missing.items()))
        data.setup()
        built[key] = data
    job.data = built[key]


def _clip_files(job: Workspace) -> None:
    """Checks that all files of the CLIP are on this machine, if the job needs one."""
    from ood_lab.clip import missing_files

    settings = job.settings
    of_model = (settings.get("model", {}).get("backbone") or {}).get("clip")
    node = settings["clip"] if "clip" in job.uses else of_model
    if node and not node["download"] and (files := missing_files(**node)):
        raise UserError(
            "\n".join(f"CLIP {node['name']}: {file} is not on this machine" for file in files)
        )


def _backbone(job: Workspace, built: dict[str, Any]) -> None:
    node = {key: job.settings[key] for key in ("model", "ckpt")}
    key = "model" + json.dumps([node, job.data.classes], sort_keys=True, default=str)
    if key not in built:
        built[key] = job.load_backbone(job.data.classes, fit=False)
    job.backbone = built[key]


def _check_writable(folder: Path) -> None:
    place = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    if not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
        raise UserError(
            f"cannot write the run folder {folder}: set paths.outputs=DIR to a place you may write"
        )
