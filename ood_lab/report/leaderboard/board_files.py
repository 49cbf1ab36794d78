"""The leaderboard: its verdict and its figures; CSV, Markdown, LaTeX, HTML, terminal."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import AutoLocator

from ood_lab.common.english import counted, listed
from ood_lab.common.files import write_text
from ood_lab.common.grouping import grouped
from ood_lab.report.figures.bars import Bar, bar_columns
from ood_lab.report.figures.layout import COLOURS, SOFT, add_legend, panels, style, wrapped
from ood_lab.report.figures.lines import Line, draw_lines
from ood_lab.report.leaderboard.detector_runs import ALL_SHOTS, DetectorRun
from ood_lab.report.leaderboard.hierarchy_table import hierarchy_rows, hierarchy_wide, recall_tables
from ood_lab.report.leaderboard.long_table import MEAN, Leaderboard, aggregate
from ood_lab.report.leaderboard.run_names import labels, short_names, trainings
from ood_lab.report.leaderboard.significance import PAIR, mark_best
from ood_lab.report.leaderboard.wide_table import row_names, wide_table
from ood_lab.report.rendering.blocks import Block, Folded, PlannedFigure, Section, Text, texts
from ood_lab.report.rendering.drawing import optional
from ood_lab.report.rendering.metric_definitions import (
    definitions_of,
    fpr95_sentence,
    percent,
    star_sentence,
)
from ood_lab.report.rendering.page import Page
from ood_lab.report.rendering.paper_tables import latex, markdown
from ood_lab.report.rendering.prose import spread_of
from ood_lab.report.rendering.table import Table, names_column, table_of
from ood_lab.report.verdict.rules import STATISTICS, BoardVerdict
from ood_lab.schema.results import keys_of
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
    tables = [wide, *hierarchy, *recalls]
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
        folded = [Folded(table.caption, [table]) for table in recalls]
        figures = _figures(board, name, shots)
        page(board, [*hierarchy, *folded], figures, notes).write(
            folder / f"{name}.html", figures="."
        )
        files.append(f"{name}.html")
    return [folder / file for file in files]


def _figures(board: Leaderboard, name: str, shots: pd.DataFrame) -> Iterator[PlannedFigure]:
    """What more training images bring, and the DAD, where they are known."""
    if not shots.empty:
        yield PlannedFigure(
            f"{name}_shots",
            "Number of training images",
            "ID accuracy, and AUROC as the mean over all OOD sets, against the training images of "
            "each class. Bands are one standard deviation over seeds on either side; grey and "
            "dashed is the best of all methods.",
            partial(shots_figure, shots, best_of_all(board)),
        )
    if board.dads:
        caption = "DAD and FPR95 of every method, grouped and ordered by DAD."
        yield PlannedFigure(f"{name}_dad", "DAD and FPR95", caption, partial(dad_figure, board))


def page(
    board: Leaderboard,
    hierarchy: Sequence[Block],
    figures: Iterable[PlannedFigure],
    notes: Sequence[str],
) -> Page:
    """The page of the leaderboard."""
    wide, rows = wide_table(board), board.rows.dropna(subset=["detector"])
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
    return table_of("Runs and settings", [names_column(key, rows[key]) for key in keys])


def terminal(board: Leaderboard, title: str, full: bool = False) -> list[Block]:
    """The verdict for the terminal; its tables where ``full`` is true, or no run has a verdict.

    Of the table without a verdict it is the top.
    """
    verdict = board_verdict(board)
    if verdict.verdicts and not full:
        warnings = texts(board.warnings, "warning")
        return [Text(title, "title"), *warnings, *verdict.blocks()]
    wide = wide_table(board)
    notes = [wide.caption, star_sentence(tested=True), *board.warnings]
    rows = wide.rows if full else wide.rows[:_TERMINAL_ROWS]
    if left := len(wide.rows) - len(rows):
        notes.append(f"{left} more rows in the files.")
    return [replace(wide, caption=title, rows=rows, notes=notes), *verdict.blocks()]


def board_verdict(board: Leaderboard) -> BoardVerdict:
    """The verdict over models and seeds: means, standard deviations and counts of verdicts."""
    runs = [run for run in board.runs if run.view.verdict.named]
    detectors = _verdict_rows(runs, board.runs) if runs else pd.DataFrame()
    rows = detectors
    if runs:
        order = ["recommended", "in_best_set", "auroc"]
        rows = detectors.sort_values(order, ascending=False, kind="stable").drop_duplicates("run")
        rows = rows.sort_values("auroc", ascending=False, kind="stable")
        rows = rows.assign(configuration=labels(rows))
    return BoardVerdict(
        detectors,
        rows,
        verdicts=[run.view.verdict for run in runs],
        n_sets=len(board.sets),
        positive=board.fpr95_positive,
        without=len(board.runs) - len(runs),
    )


def _verdict_rows(runs: Sequence[DetectorRun], of_board: Sequence[DetectorRun]) -> pd.DataFrame:
    """A row for every detector and configuration, see :attr:`BoardVerdict.detectors`."""
    single = pd.concat([_means_of(run) for run in runs])
    single["training"] = single["run"].map(trainings(of_board))
    rows = short_names(aggregate(single), runs)
    lost = {run.sweep for run in runs if run.at_chance}
    of_auroc, keys = single[single["metric"] == "auroc"], ["run", "detector"]
    of_one_seed = of_auroc[~of_auroc.duplicated(keys, keep=False)]
    outcomes = of_one_seed["detects"] & of_one_seed["in_best_set"]
    pairs = dict(zip(keys_of(of_one_seed, PAIR), outcomes, strict=True))
    rows["best"] = mark_best(rows, pairs, lost)
    fpr95 = rows[rows["metric"] == "fpr95"][["run", "detector", *STATISTICS]]
    rows = rows[rows["metric"] == "auroc"].drop(columns=["metric", "dataset", "low"])
    auroc, fpr95 = (
        table.rename(columns={name: f"{metric}{end}" for name, end in STATISTICS.items()})
        for metric, table in (("auroc", rows), ("fpr95", fpr95))
    )
    counts = of_auroc.groupby(keys)[["recommended", "in_best_set", "detects"]].sum()
    return auroc.merge(fpr95).join(counts, on=keys)


def _means_of(run: DetectorRun) -> pd.DataFrame:
    """The means of all detectors in the verdict of one run, as the leaderboard has its numbers."""
    rows = run.view.verdict.rows
    rows = rows[rows["metric"].isin([f"{MEAN}_auroc", f"{MEAN}_fpr95"])]
    return rows.rename(columns={"ci_low": "low", "ci_high": "high"}).assign(
        **run.columns,
        dataset=MEAN,
        metric=rows["metric"].str.removeprefix(f"{MEAN}_"),
        settings=rows["detector"].map(run.settings),
        recommended=rows["detector"] == run.view.verdict.recommended,
        in_best_set=rows["detector"].isin(run.view.verdict.best),
        detects=run.view.verdict.detects,
    )


_BACKGROUNDS = {"origin": "-", "replaced": "--"}


class Method(NamedTuple):
    """A row of the figure: its DAD, and FPR95 with half of its interval on every set in order."""

    name: str
    dad: float
    fpr95: list[float]
    halves: list[float]


def kind_of(board: Leaderboard) -> tuple[str, Sequence[str]]:
    """The paper's DAD, and what FPR95 is of: the sets, or where sets form groups, their means."""
    if "dad_of_means" in board.dads:
        return "dad_of_means", [f"{MEAN} {group}" for group in board.groups]
    return "dad", board.shift_order


def methods_by_dad(board: Leaderboard) -> list[Method]:
    """The methods with a DAD: the largest DAD first, and of equal ones the lowest mean FPR95."""
    kind, columns = kind_of(board)
    rows, names = board.rows, row_names(board)
    fpr95 = rows[rows["metric"] == "fpr95"].set_index(["run", "detector", "dataset"])
    methods = []
    for row in rows[(rows["metric"] == kind) & rows["value"].notna()].to_dict("records"):
        run, detector = row["run"], row["detector"]
        of_sets = fpr95.loc[[(run, detector, ood) for ood in columns]]
        values, halves = (list(of_sets[key]) for key in ("value", "sampling_half_width"))
        methods.append(Method(names[run, detector], row["value"], values, halves))
    return sorted(methods, key=lambda method: (-method.dad, fmean(method.fpr95)))


def dad_figure(board: Leaderboard) -> Figure:
    """A row per method; DAD, and a column of FPR95 per OOD set of the order; lines part groups.

    As in figure 6 of arXiv:2412.12683.
    """
    methods = methods_by_dad(board)
    kind, columns = kind_of(board)
    footer = (
        "Sorted by DAD, then by mean FPR95; columns by increasing shift; lines: 95% intervals.\n"
        f"{fpr95_sentence(board.fpr95_positive)}."
    )
    dads = [Bar(m.dad, text=f"{m.dad:g}", colour=COLOURS[1]) for m in methods]
    bars = {f"DAD ({board.dads[kind]})": dads}
    for place, name in enumerate(columns):
        bars[wrapped(name, 12)] = [_bar(m.fpr95[place], m.halves[place]) for m in methods]
    figure, grid = bar_columns(bars, [method.name for method in methods], footer)
    grid[0].set_xlim(0, 1.4 * math.comb(len(columns), 2))
    grid[0].xaxis.set_major_locator(AutoLocator())
    for row, (one, other) in enumerate(pairwise(methods)):
        for axes in grid if one.dad != other.dad else ():
            axes.axhline(row + 0.5, color=SOFT, lw=0.6)
    grid[1 + len(columns) // 2].set_xlabel("FPR95 in %")
    return figure


def _bar(value: float, half: float) -> Bar:
    low, high = 100 * max(value - half, 0.0), 100 * min(value + half, 1.0)
    return Bar(100 * value, low, high, text=percent(value))


def shots_figure(rows: pd.DataFrame, best: Mapping[str, tuple[str, float]]) -> Figure:
    """A panel of ID accuracy, and one of AUROC for every detector; a line per model and background.

    As in figure 7 of arXiv:2412.12683.

    Args:
        rows: ``model, background, detector, metric, shots, value, seed_std, n_seeds``, see
            :func:`ood_lab.report.leaderboard.board_files.shots_rows`.
        best: metric → name and value that a dashed line shows.
    """
    maps = list(rows.groupby(["metric", "detector"], sort=False))
    maps.sort(key=lambda item: item[0][0] != "id_accuracy")
    titles = ["ID accuracy" if m == "id_accuracy" else f"AUROC: {d}" for (m, d), _ in maps]
    seeds = spread_of(rows["n_seeds"], factor=1)
    footer = f"Mean of {seeds} seeds; bands: one standard deviation over them."
    footer = footer if (rows["n_seeds"] > 1).any() else "One seed: no spread is known."
    labels = ("training images per class", "in %")
    figure, grid = panels(titles, footer, height=1.9, extra=1.0, labels=labels)
    places = _places(sorted(set(rows["shots"])))
    models = list(rows["model"].unique())
    for axes, ((metric, _), part) in zip(grid, maps, strict=True):
        groups = part.groupby(["model", "background"], sort=False)
        lines = [
            _line(line, places, models.index(name), str(back)) for (name, back), line in groups
        ]
        draw_lines(axes, lines, edged=True)
        if highest := best.get(str(metric)):
            label = f"best {'model' if metric == 'id_accuracy' else 'detector'}: {highest[0]}"
            axes.axhline(100 * highest[1], color=SOFT, ls="--", lw=1.0, label=label)
        axes.set_xticks(list(places.values()), ["all" if s < 0 else str(s) for s in places])
    add_legend(figure, grid)
    return figure


def _places(shots: Sequence[int]) -> dict[int, float]:
    """Position of each number: logarithmic, all images (-1) a step behind the last."""
    places = {s: math.log2(s) for s in shots if s > 0}
    return places | ({s: max(places.values()) + 1.0 for s in shots if s < 0})


def _line(rows: pd.DataFrame, places: dict[int, float], model: int, background: str) -> Line:
    x = rows["shots"].map(places).to_numpy(float)
    y = 100 * rows["value"].to_numpy(float)
    # One seed has no spread.
    half = 100 * rows["seed_std"].fillna(0.0).to_numpy(float)
    name = str(rows["model"].iloc[0])
    label = name if background == "origin" else f"{name}, backgrounds {background}"
    look = style(model)._replace(line=_BACKGROUNDS.get(background, ":"))
    return Line(x, y, look, label, y - half, y + half)


log = logging.getLogger(__name__)
COLUMNS = ["model", "background", "detector", "metric", "shots", "value", "seed_std", "n_seeds"]
#: Those that together name a point of the figure.
_POINT = COLUMNS[:5]


def shots_rows(board: Leaderboard) -> pd.DataFrame:
    """ID accuracy, and AUROC (the mean over all OOD sets) of every detector, by number of shots.

    Only of models with at least two numbers; empty where there is none, or where two
    configurations would share a point.

    Returns:
        Columns :data:`COLUMNS` and ``run``; ``shots`` = -1 stands for all images, and is last;
        ``detector`` is empty for the accuracy.
    """
    rows = _summary_rows(board)
    runs = {run.sweep: run for run in board.runs}
    rows = rows.assign(
        shots=[runs[name].shots for name in rows["run"]],
        background=[runs[name].background for name in rows["run"]],
        detector=rows["detector"].fillna(""),
    )
    rows = rows[rows.groupby("model")["shots"].transform("nunique") > 1]
    if (twice := rows[rows.duplicated(_POINT)]).size:
        log.warning(
            "no figure over shots: %s has two configurations of the same shots and background",
            twice["model"].iloc[0],
        )
        return rows.iloc[:0]
    rows = rows.assign(
        highest=-rows.groupby("detector")["value"].transform("max"),
        place=rows["shots"].where(rows["shots"] > 0, rows["shots"].max() + 1),
    )
    keys = ["model", "background", "metric", "highest", "detector", "place"]
    return rows.sort_values(keys, kind="stable")[[*COLUMNS, "run"]].reset_index(drop=True)


def _summary_rows(board: Leaderboard) -> pd.DataFrame:
    """ID accuracies, and the AUROC over all OOD sets."""
    rows = board.rows[board.rows["metric"].isin(["id_accuracy", "auroc"])]
    return rows[rows["dataset"].isna() | (rows["dataset"] == board.summary)]


def best_shots(runs: Sequence[DetectorRun]) -> tuple[list[DetectorRun], list[str]]:
    """Of the runs of a model that differ in shots, those of its best number (section 4.4).

    The best has the largest mean AUROC over the OOD sets, of its best detector and the mean over
    its seeds: it is chosen on the sets that it is compared on, as in the paper.

    Returns:
        The runs, and a sentence for each model with a choice.
    """

    def auroc(run: DetectorRun) -> float:
        return run.view.mean("auroc", run.view.detectors[0]).value

    models = grouped(((run.model, run.background), run) for run in runs)
    chosen, notes = [], []
    for (model, _), of_model in models.items():
        by_shots = grouped((run.shots, run) for run in of_model)
        best = max(by_shots, key=lambda shots: fmean(map(auroc, by_shots[shots])))
        chosen += by_shots[best]
        if len(by_shots) > 1:
            words = {n: "all images" if n == ALL_SHOTS else f"{n} shots" for n in by_shots}
            notes.append(
                f"{model} is shown with {words[best]}, the best of {listed(words.values())} "
                "by mean AUROC on these OOD datasets: its numbers are optimistic."
            )
    return chosen, notes


def best_of_all(board: Leaderboard) -> dict[str, tuple[str, float]]:
    """Metric → name and value of its best row: every method, whatever it was trained on."""
    best = {}
    for metric, rows in _summary_rows(board).dropna(subset="value").groupby("metric"):
        row = rows.sort_values("value", ascending=False, kind="stable").iloc[0]
        name = row["model"] if metric == "id_accuracy" else row["detector"]
        best[str(metric)] = (str(name), float(row["value"]))
    return best
