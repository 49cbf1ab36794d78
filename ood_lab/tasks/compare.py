"""One leaderboard over finished runs; needs neither data nor backbone."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from ood_lab.common.english import counted
from ood_lab.common.errors import UserError
from ood_lab.report.leaderboard.board_files import best_shots, terminal, write_leaderboard
from ood_lab.report.leaderboard.detector_runs import (
    DetectorRun,
    comparable_groups,
    why_separate,
)
from ood_lab.report.leaderboard.long_table import Leaderboard, make_leaderboard
from ood_lab.report.rendering.summary import LINES, show_blocks
from ood_lab.run.job.workspace import Task, Workspace
from ood_lab.schema.finished_run import FinishedRun, finished_runs

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Compare(Task):
    """Writes ``leaderboard.csv``, ``.md``, ``.tex`` and ``.html`` over models, detectors and sets.

    Page and Markdown begin with the verdict over models and seeds; the terminal shows only it,
    and the table, too, with ``detector_table=all``.

    Runs of another positive class of FPR95, data, shift order or choice of sets than most get
    tables of their own, ``leaderboard-2.*`` and so on, with the reason.

    Args:
        runs: run folders, folders of them, or globs of either.
        best_shots: of runs of a model that differ in ``data.shots``, take only the best, see
            :func:`~ood_lab.report.leaderboard.board_files.best_shots`.

    Raises:
        UserError: no finished run is found, or one of them is damaged.
    """

    runs: str | Sequence[str]
    best_shots: bool

    def run(self, ws: Workspace) -> None:
        """See the class."""
        if not ws.is_main:
            return
        main, *others = comparable_groups(_with_detectors(finished_runs(self.runs)))
        groups = {"leaderboard": main}
        groups |= {f"leaderboard-{n}": group for n, group in enumerate(others, 2)}
        reasons = {name: f"{name}: {why_separate(groups[name], main)}" for name in [*groups][1:]}
        every = ws.settings["detector_table"] == "all"
        warnings = list(reasons.values())
        for name in reversed([*groups]):  # the verdict over most runs is the last
            notes = [reasons[name]] if name in reasons else list(reasons.values())
            if self.best_shots:
                groups[name], choices = best_shots(groups[name])
                notes, warnings = [*choices, *notes], [*choices, *warnings]
            group = groups[name]
            board = make_leaderboard(group)
            write_leaderboard(board, ws.folder, name, notes)
            blocks = terminal(board, f"{name} of {_counted(board, group)}", every)
            show_blocks(blocks, ws.folder, name, lines=None if every else LINES)
        for line in warnings:
            log.warning("%s", line)
        ws.record.runs = {n: [*map(str, group)] for n, group in groups.items()}


def _counted(board: Leaderboard, group: Sequence[DetectorRun]) -> str:
    """``3 runs``, and how many of them repeat the numbers of others."""
    repeated = len(group) - len(board.runs)
    runs = counted(len(group), "run")
    return f"{runs}, of which {repeated} only repeat numbers of others" if repeated else runs


def _with_detectors(runs: Sequence[FinishedRun]) -> list[DetectorRun]:
    """Runs that scored detectors; others (zero-shot accuracies of a CLIP) are named."""
    scored = [DetectorRun(run.folder) for run in runs if run.record.detectors]
    if not scored:
        raise UserError(f"no detector was scored in {', '.join(map(str, runs))}")
    for run in runs:
        if not run.record.detectors:
            log.info("left out, as no detector was scored there: %s", run)
    return scored
