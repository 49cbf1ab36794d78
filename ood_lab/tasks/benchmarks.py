"""One table over the vision-language benchmarks of models, and the results of detectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ood_lab.common.files import read_table, write_csv
from ood_lab.lvlm.scoring.run_comparison import contrasts_of_runs
from ood_lab.report.leaderboard.benchmark_table import (
    answer_board,
    board_page,
    board_sentences,
    board_tables,
    detector_table,
    read_benchmarks,
)
from ood_lab.report.leaderboard.run_locations import finished_runs
from ood_lab.report.rendering.blocks import Text
from ood_lab.report.rendering.page import write_summary
from ood_lab.report.rendering.table import Table
from ood_lab.report.rendering.terminal import print_blocks
from ood_lab.run.building.workspace import Task, Workspace

#: What ``task=compare`` leaves in its folder.
_LEADERBOARD = "leaderboard.csv"
#: Bootstrap resamples of paired tests.
_DRAWS = 1000


@dataclass(frozen=True, kw_only=True)
class Benchmarks(Task):
    """Writes ``benchmarks.csv`` and ``benchmarks.html``.

    Args:
        runs: run folders, folders of them, or globs of either: runs of any question benchmark;
            the leaderboards of ``task=compare`` are shown, too.

    Raises:
        UserError: no finished run is found, or none prompted a vision-language model.
    """

    runs: str | Sequence[str]

    def run(self, ws: Workspace) -> None:
        """See the class."""
        if not ws.is_main:
            return
        folders = finished_runs(self.runs, ("results.parquet", _LEADERBOARD))
        runs = read_benchmarks(folders)
        board = answer_board(runs)
        write_csv(board, ws.folder / "benchmarks.csv")
        beside = {
            folder: detector_table(pd.read_csv(folder / _LEADERBOARD))
            for folder in folders
            if (folder / _LEADERBOARD).exists()
        }
        models = len(set(board["model"]))
        ws.manifest |= {
            "title": f"Vision-language benchmarks of {models} model{'s' * (models > 1)}",
            "runs": [str(folder) for folder in folders],
        }
        blocks: list[Text | Table] = [
            Text(s, "answer") for s in board_sentences(board, runs, _contrasts(board))
        ]
        blocks += board_tables(board)
        write_summary(blocks, ws.folder, "benchmarks")
        print_blocks(blocks)
        page = board_page(blocks, beside, runs, ws.manifest)
        page.write(ws.folder / "benchmarks.html")


def _contrasts(board: pd.DataFrame) -> pd.DataFrame:
    """Paired tests of all runs with the same yes/no questions, Holm-corrected."""
    found = []
    for _, part in board.groupby("asked", sort=False):
        paths = part.drop_duplicates("run").set_index("label")["run"]
        files = {label: Path(run) / "judged.parquet" for label, run in paths.items()}
        if len(files) > 1 and all(file.is_file() for file in files.values()):
            tables = {str(label): read_table(file) for label, file in files.items()}
            splits = list(dict.fromkeys(part["split"]))
            found.append(contrasts_of_runs(tables, splits, draws=_DRAWS))
    return pd.concat([pd.DataFrame(), *found]).assign(draws=_DRAWS)
