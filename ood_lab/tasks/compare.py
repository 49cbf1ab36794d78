"""One leaderboard over finished runs; needs neither data nor backbone."""

from __future__ import annotations

import glob
import json
import logging
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ood_lab.errors import UserError
from ood_lab.report.leaderboard import make_leaderboard
from ood_lab.report.leaderboard_files import terminal, write_leaderboard
from ood_lab.report.leaderboard_runs import (
    FinishedRun,
    check_comparable,
    comparable_groups,
    read_run,
)
from ood_lab.report.leaderboard_table import wide_table

log = logging.getLogger(__name__)


def compare(
    *,
    folder: Path,
    manifest: dict[str, object],
    is_main: bool,
    runs: str | Sequence[str],
    split: bool = False,
) -> None:
    """Writes ``leaderboard.csv``, ``.md``, ``.tex`` and ``.html`` over models, detectors and sets.

    Args:
        folder: run folder of this job.
        manifest: filled with the runs that were read.
        is_main: False on the other ranks, which have nothing to do.
        runs: run folders, folders of them, or globs of either.
        split: one table a group of runs that compare, instead of refusing several groups.

    Raises:
        UserError: no finished run is found; one run twice; runs of different protocol, data or
            shift order without ``split``.
    """
    if not is_main:
        return
    patterns = [runs] if isinstance(runs, str) else list(runs)
    found = [read_run(path) for path in _with_detectors(finished_runs(patterns))]
    _check_once(found)
    groups = comparable_groups(found)
    if not split:
        check_comparable(groups)
    console = Console()
    for number, group in enumerate(groups, 1):
        name = "leaderboard" if len(groups) == 1 else f"leaderboard-{number}"
        board = make_leaderboard(group)
        write_leaderboard(board, folder, name)
        title = f"{name} of {len(group)} runs"
        console.print(terminal(wide_table(board), title, console.width))
    manifest["runs"] = [str(run.path) for run in found]


def finished_runs(
    patterns: Sequence[str], tables: Sequence[str] = ("results.parquet",)
) -> list[Path]:
    """Folders with ``DONE`` and one of ``tables`` among what the patterns match, or below it.

    Raises:
        UserError: there is none, or a pattern matches nothing.
    """
    found: set[Path] = set()
    for pattern in patterns:
        matches = sorted(Path(p) for p in glob.glob(pattern, recursive=True) if Path(p).is_dir())
        if not matches:
            raise UserError(f"task.runs={pattern} matches no folder: name run folders or a parent")
        searched: set[Path] = set()
        for match in matches:
            # `**` matches every folder below the first one as well.
            if not searched.intersection(match.parents):
                searched.add(match)
                found |= {done.parent for done in match.rglob("DONE")}
    whole = sorted(path for path in found if any((path / table).exists() for table in tables))
    if not whole:
        raise UserError(
            f"task.runs={', '.join(patterns)} holds no finished run (DONE and "
            f"{' or '.join(tables)}): name folders written by train.py or eval.py"
        )
    return whole


def _with_detectors(paths: Sequence[Path]) -> list[Path]:
    """Runs that scored detectors; others (zero-shot accuracies of a CLIP) are named."""
    manifests = {path: json.loads((path / "manifest.json").read_text()) for path in paths}
    others = [path for path in paths if "detectors" not in manifests[path]]
    if len(others) == len(paths):
        raise UserError(f"no detector was scored in {', '.join(map(str, paths))}")
    for path in others:
        log.info("left out, as no detector was scored there: %s", path)
    return [path for path in paths if path not in others]


def _check_once(runs: Sequence[FinishedRun]) -> None:
    """A copy of a run would pass for another seed of it."""
    seen: dict[tuple[str, int], FinishedRun] = {}
    for run in runs:
        other = seen.setdefault((run.sweep, run.seed), run)
        if other is not run:
            raise UserError(
                f"{run.path} and {other.path} are the same configuration and seed: leave one "
                "out of task.runs"
            )
