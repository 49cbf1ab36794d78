"""The leaderboard as CSV, Markdown, LaTeX, one HTML page, and for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd

from ood_lab.common.english import counted
from ood_lab.common.files import write_text
from ood_lab.report.leaderboard.hierarchy_table import hierarchy_rows, hierarchy_wide, recall_tables
from ood_lab.report.leaderboard.long_table import Leaderboard
from ood_lab.report.leaderboard.shots_page import best_of_all, shots_rows
from ood_lab.report.leaderboard.verdict_rows import board_verdict
from ood_lab.report.leaderboard.wide_table import wide_table
from ood_lab.report.rendering.blocks import Block, Folded, PlannedFigure, Section, Text
from ood_lab.report.rendering.metric_definitions import (
    definitions_of,
    fpr95_sentence,
    star_sentence,
)
from ood_lab.report.rendering.output_failures import optional
from ood_lab.report.rendering.page import Page
from ood_lab.report.rendering.paper_tables import latex, markdown
from ood_lab.report.rendering.table import Cell, Head, Table
from ood_lab.schema.run_record import RunRecord

_TERMINAL_ROWS = 20


def write_leaderboard(
    board: Leaderboard, folder: Path, name: str = "leaderboard", notes: Sequence[str] = ()
) -> list[Path]:
    """Writes ``<name>.csv`` (long), ``.md``, ``.tex`` and ``.html`` into ``folder``.

    Where runs have a hierarchy table, so do the last three; ``<name>_hierarchy.csv`` has its
    numbers. Where they have several numbers of training images, ``<name>_shots.csv``, ``.png`` and
    ``.svg`` show what more of them bring. Where there is a DAD, ``<name>_dad.png`` and ``.svg``
    show it next to the FPR95 of every set. ``<name>_verdict.csv`` has the numbers of the verdict.

    Args:
        board: the table.
        folder: where the files go.
        name: of the files.
        notes: what to know of the choice of runs; first on the page.

    Returns:
        The files.
    """
    wide = wide_table(board)
    accuracies = hierarchy_rows(board.runs)
    hierarchy = hierarchy_wide(accuracies)
    recalls = recall_tables(accuracies)
    tables = [wide, *([hierarchy] if hierarchy else []), *recalls]
    verdict = board_verdict(board)
    opening = [markdown(verdict.table(), verdict.sentences)] if verdict.verdicts else []
    texts = {
        f"{name}.csv": board.rows.to_csv(index=False),
        f"{name}.md": "\n".join([*opening, *(markdown(t, board.warnings) for t in tables)]),
        f"{name}.tex": "\n".join(latex(table, board.warnings) for table in tables),
    }
    if verdict.verdicts:
        texts[f"{name}_verdict.csv"] = verdict.detectors.to_csv(index=False)
    if hierarchy:
        texts[f"{name}_hierarchy.csv"] = accuracies.to_csv(index=False)
    shots = shots_rows(board)
    if not shots.empty:
        texts[f"{name}_shots.csv"] = shots.to_csv(index=False)
    for file, text in texts.items():
        write_text(text, folder / file)
    files = list(texts)
    with optional(f"{name}.html"):
        dating: list[Block] = []
        if hierarchy:
            dating = [hierarchy, *(Folded(t.caption, [t]) for t in recalls)]
        figures = _figures(board, name, shots)
        page(board, wide, dating, figures, notes).write(folder / f"{name}.html", figures=".")
        files.append(f"{name}.html")
    return [folder / file for file in files]


def _figures(board: Leaderboard, name: str, shots: pd.DataFrame) -> Iterator[PlannedFigure]:
    """What more training images bring, and the DAD, where they are known."""
    if not shots.empty:
        from ood_lab.report.leaderboard.board_figures import shots_figure  # slow to load

        yield PlannedFigure(
            f"{name}_shots",
            "Number of training images",
            "ID accuracy, and AUROC as the mean over all OOD sets, against the training images of "
            "each class. Bands are one standard deviation over seeds on either side; grey and "
            "dashed is the best of all methods.",
            partial(shots_figure, shots, best_of_all(board)),
        )
    if board.dads:
        from ood_lab.report.leaderboard.board_figures import dad_figure

        caption = "DAD and FPR95 of every method, grouped and ordered by DAD."
        draw = partial(dad_figure, board)
        yield PlannedFigure(f"{name}_dad", "DAD and FPR95", caption, draw)


def page(
    board: Leaderboard,
    wide: Table,
    hierarchy: Sequence[Block],
    figures: Iterable[PlannedFigure],
    notes: Sequence[str] = (),
) -> Page:
    """The page of the leaderboard."""
    rows = board.rows.dropna(subset=["detector"])
    models, detectors, runs = (rows[name].nunique() for name in ("model", "detector", "run"))
    best = wide.rows[0]
    named = ", ".join(cell.text for cell in best[1 : wide.names] if cell.text)
    auroc = f"{best[wide.names].text}%"
    return Page(
        title="Leaderboard",
        sentence=fpr95_sentence(board.fpr95_positive),
        facts=[
            ("Models", str(models), counted(runs, "configuration")),
            ("Detectors", str(detectors), counted(len(wide.rows), "row")),
            ("OOD sets", str(len(board.sets)), ", ".join(board.sets)),
            ("Highest mean AUROC", best[0].text, f"{auroc} · {named}" if named else auroc),
        ],
        warnings=[*notes, *board.warnings],
        blocks=[
            Section("Verdict", board_verdict(board).blocks(page=True)),
            Section("Results", [wide, Folded("Runs and settings", [_settings_table(board)])]),
            Section("Hierarchical classification", hierarchy),
            Section("Figures", list(figures)),
        ],
        definitions=definitions_of(board.rows),
        record=RunRecord(runs={f"{run.sweep}/seed={run.seed}": str(run) for run in board.runs}),
    )


def _settings_table(board: Leaderboard) -> Table:
    """Where every row comes from and with which hyperparameters."""
    keys = ["detector", "model", "training", "run", "seeds", "settings"]
    rows = board.rows.dropna(subset=["detector"]).drop_duplicates(["run", "detector"])
    cells = [[Cell(str(row[k]), str(row[k])) for k in keys] for row in rows.to_dict("records")]
    return Table("Runs and settings", [Head(k, "ascending") for k in keys], cells)


def terminal(board: Leaderboard, title: str, full: bool = False) -> list[Block]:
    """The verdict for the terminal; its tables where ``full`` is true, or no run has a verdict.

    Of the table without a verdict it is the top.
    """
    verdict = board_verdict(board)
    if verdict.verdicts and not full:
        warnings = [Text(warning, "warning") for warning in board.warnings]
        return [Text(title, "title"), *warnings, *verdict.blocks()]
    wide = wide_table(board)
    notes = [wide.caption, star_sentence(tested=True), *board.warnings]
    rows = wide.rows if full else wide.rows[:_TERMINAL_ROWS]
    if left := len(wide.rows) - len(rows):
        notes.append(f"{left} more rows in the files.")
    table = replace(wide, caption=title, rows=rows, notes=notes)
    return [table, *verdict.blocks()]
