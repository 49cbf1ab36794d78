"""One table over the vision-language benchmarks of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.files import read_table, write_csv, write_text
from ood_lab.lvlm.benchmark.contract import Benchmark
from ood_lab.lvlm.pages.benchmark_page import difference_table
from ood_lab.lvlm.scoring.answer_differences import same_questions, together
from ood_lab.report.leaderboard.benchmark_table import (
    answer_board,
    benchmark_runs,
    board_page,
    board_sentences,
    board_tables,
    both_ways,
    metric_figures,
    metric_rows,
    metric_tables,
    reading_warnings,
)
from ood_lab.report.rendering.blocks import Folded, Text
from ood_lab.report.rendering.drawing import optional
from ood_lab.report.rendering.paper_tables import latex, markdown
from ood_lab.report.rendering.summary import show_blocks
from ood_lab.report.rendering.table import Table
from ood_lab.run.job.workspace import Task, Workspace
from ood_lab.schema.finished_run import FinishedRun, finished_runs
from ood_lab.schema.results import PART

#: Single answers of a benchmark.
_ANSWERS = ("judged", "captions")


@dataclass(frozen=True, kw_only=True)
class Benchmarks(Task):
    """Writes ``benchmarks.csv`` (headlines), ``benchmark_metrics.csv`` (all metrics) and a page.

    ``benchmark_differences.csv`` has the paired differences of runs with the same questions.

    ``benchmarks.md``, ``benchmarks.tex`` and ``benchmarks.html`` have all tables; the page has a
    figure of every table.

    Args:
        runs: run folders, folders of them, or globs of either: runs of any question benchmark.

    Raises:
        UserError: no finished run is found, or none prompted a vision-language model.
    """

    runs: str | Sequence[str]

    def run(self, ws: Workspace) -> None:
        """See the class."""
        if not ws.is_main:
            return
        finished = finished_runs(self.runs)
        runs = benchmark_runs(finished)
        board = answer_board(runs)
        write_csv(board, ws.folder / "benchmarks.csv")
        models = len(board.drop_duplicates(["model", "weights"]))
        ws.record.title = f"Vision-language benchmarks of {models} model{'s' * (models > 1)}"
        ws.record.runs = [*map(str, finished)]
        contrasts, differences = _contrasts(ws, board)
        tests = both_ways(contrasts, int(ws.metrics["n_bootstrap"]))
        rows = metric_rows(runs, dict(zip(board["run"], board["label"], strict=True)), tests)
        tables, headlines = metric_tables(rows), board_tables(board)
        write_csv(rows, ws.folder / "benchmark_metrics.csv")
        for name, show in (("md", markdown), ("tex", latex)):
            text = "\n".join(show(table) for table in (*headlines, *tables))
            write_text(text, ws.folder / f"benchmarks.{name}")
        blocks: list[Text | Table | Folded] = [
            Text(s, "answer") for s in board_sentences(board, runs, tests)
        ]
        blocks += headlines
        ws.record.warnings = warnings = [*reading_warnings(board)]
        blocks += [Text(warning, "warning") for warning in warnings]
        blocks += [t for t in tables if len(t.rows) > 1]
        if differences:
            write_csv(contrasts, ws.folder / "benchmark_differences.csv")
            title = "Differences between runs on the same questions"
            blocks.append(Folded(title, differences, page_only=True))
        if alone := [table for table in tables if len(table.rows) == 1]:
            blocks.append(Folded("All metrics of single runs", alone, page_only=True))
        show_blocks(blocks, ws.folder, "benchmarks")
        with optional("benchmarks.html"):
            figures = list(metric_figures(rows))
            page = board_page(blocks, runs, ws.record, figures)
            page.write(ws.folder / "benchmarks.html")


def _contrasts(ws: Workspace, board: pd.DataFrame) -> tuple[pd.DataFrame, list[Table]]:
    """Paired tests of all runs with the same questions, Holm-corrected; a table of each set."""
    contrasts, tables = [pd.DataFrame()], []
    for _, part in board.groupby(["asked", "parser", "reader"], sort=False):
        runs = part.drop_duplicates("run").set_index("label")["run"]
        tests, task = _tests(ws, {str(name): FinishedRun(Path(run)) for name, run in runs.items()})
        if task is not None and len(tests):
            contrasts.append(tests)
            title = "{benchmark} on {data}, read by {parser}, points".format(**part.iloc[0])
            sets = task.words.sets if "split" in tests else None
            tables.append(difference_table(title, tests, {}, task.words.compared, sets))
    return pd.concat(contrasts).assign(draws=int(ws.metrics["n_bootstrap"])), tables


def _tests(ws: Workspace, runs: Mapping[str, FinishedRun]) -> tuple[pd.DataFrame, Benchmark | None]:
    """The tests that their benchmark makes of models; empty where it cannot read one of the runs.

    Args:
        ws: has the draws.
        runs: by model; they have the same questions.
    """
    files = [n for n in _ANSWERS if all(run.has(f"{n}.parquet") for run in runs.values())]
    if "judged" not in files or len(runs) == 1:
        return pd.DataFrame(), None
    answers = {
        n: {m: read_table(run.folder / f"{n}.parquet") for m, run in runs.items()} for n in files
    }
    try:
        tables = {name: together(of_models) for name, of_models in answers.items()}
        tables["judged"] = same_questions(answers["judged"], texts=False)
        task = cast(Benchmark, ws.task_of(next(iter(runs.values())).folder))
        contrasts = task.form_contrasts(tables, resampling=ws.resampling)
    except UserError:
        return pd.DataFrame(), None
    return (contrasts[contrasts[PART].isna()] if PART in contrasts else contrasts), task
