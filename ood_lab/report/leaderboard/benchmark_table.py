"""Tables over the question benchmarks of several vision-language models."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ood_lab.common.english import counted, listed
from ood_lab.common.errors import UserError
from ood_lab.common.grouping import grouped
from ood_lab.report.figures.bars import bar_panels
from ood_lab.report.figures.layout import wrapped
from ood_lab.report.leaderboard.long_table import WORDS
from ood_lab.report.leaderboard.significance import best_rows, within_noise
from ood_lab.report.rendering.blocks import Folded, Links, PlannedFigure, Section, Text
from ood_lab.report.rendering.metric_definitions import MISSING, percent, star_sentence
from ood_lab.report.rendering.page import Page
from ood_lab.report.rendering.prose import (
    ALPHA,
    EACH,
    INTERVALS,
    listing,
    sentences,
    tested,
    value_of,
)
from ood_lab.report.rendering.table import (
    Cell,
    Column,
    Group,
    Head,
    NumberFormat,
    Table,
    count_cell,
    estimate_cell,
    names_column,
    pivoted,
    table_of,
)
from ood_lab.schema.finished_run import FinishedRun
from ood_lab.schema.image_columns import LEVELS
from ood_lab.schema.results import (
    PART,
    RESULTS,
    NamedTables,
    Names,
    Row,
    first_way,
    whole,
    why_missing,
)
from ood_lab.schema.run_record import BenchmarkFacts, RunRecord

#: What the runs of one table have in common: they were asked the very same questions.
ALIKE = ["benchmark", "data", "asked"]
#: How replies were asked for and read, of the record's ``reading``.
READING = ("parser", "form", "samples", "reader")
#: What rows have in common that may be tested against each other.
TESTABLE = [*ALIKE, "parser", "reader"]
_LOST = {"n_unparsed": "unparsed", "n_failed": "failed"}
#: What asking took, of the record's ``asking``.
_ASKING = {
    "input_tokens": "tokens in",
    "output_tokens": "tokens out",
    "cost": "cost",
    "retries": "retries",
    "latency_s": "latency, s",
}
_COLUMNS = [
    *(*ALIKE, "questions", "images", "model", "label", *READING, "column", *_ASKING, "weights"),
    *("split", "metric", "value", "ci_low", "ci_high", "n", "unit", *_LOST, "reason", "run"),
]
_TESTED = ["a", "b", "metric", "split", "value_a", "value_b", "ci_low", "p_value", "p_holm"]


class BenchmarkRun(FinishedRun):
    """A finished run that prompted a vision-language model."""

    @cached_property
    def benchmark(self) -> BenchmarkFacts:
        """What its benchmark records for tables of several benchmarks."""
        return self.record.benchmark or BenchmarkFacts()

    @property
    def about(self) -> dict[str, Any]:
        """The columns that all its rows share."""
        questions = self.record.question_file
        return {
            "benchmark": self.benchmark.name,
            "data": self.benchmark.about,
            "asked": questions.sha256[:10],
            "questions": questions.n,
            "images": questions.images,
            **{key: str(value or "") for key, value in self.record.reading},
            "run": str(self),
        }


def benchmark_runs(runs: Sequence[FinishedRun]) -> list[BenchmarkRun]:
    """Those that prompted a vision-language model.

    Raises:
        UserError: there is none.
    """
    of_benchmarks = [run for run in runs if run.record.benchmark and run.has(RESULTS)]
    if not of_benchmarks:
        raise UserError(f"no run of a vision-language model in {', '.join(map(str, runs))}")
    return [BenchmarkRun(run.folder) for run in of_benchmarks]


def answer_board(runs: Sequence[BenchmarkRun]) -> pd.DataFrame:
    """The headline metrics of all runs, those of one set of questions together.

    Returns:
        ``benchmark, data, asked, questions, images, model, label, parser, form, samples, reader,
        column, split, metric, value, ci_low, ci_high, n, unit, n_unparsed, n_failed, reason, run,
        weights``; shares. ``label`` is
        the model, with the name of the run, or else its folder, where a table has several of its
        runs; ``reason`` is why a value is missing; ``weights`` is the hash of local ones.
    """
    rows = []
    for run in runs:
        results, asking, shared = whole(run.results), run.record.asking, run.about
        shared |= asking.model_dump(include={*_ASKING}) if asking else {}
        shared["weights"] = str(run.record.lvlm.get("revision", ""))
        for split, metric, words in run.benchmark.headlines:
            # Where unparsed answers are treated in two ways, the first one is the headline.
            part = results[(results["split"] == split) & (results["metric"] == metric)]
            for row in part.head(1).to_dict("records"):
                reason = why_missing(row) if math.isnan(row["value"]) else ""
                rows.append(row | shared | {"column": words, "reason": reason})
    table = pd.DataFrame(rows)
    keys = [table[key] for key in (*ALIKE, "model")]
    number = table["run"].groupby(keys).transform("nunique")
    names = table["run"].map(lambda run: Path(run).parents[1].name)
    folders = table["run"].map(lambda run: "/".join(Path(run).parts[-2:]))
    places = names.where(names.groupby(keys).transform("nunique") == number, folders)
    table["label"] = table["model"].where(number == 1, table["model"] + " (" + places + ")")
    return table.reindex(columns=_COLUMNS).sort_values("benchmark", kind="stable")


def board_sentences(
    board: pd.DataFrame, runs: Sequence[BenchmarkRun], tests: pd.DataFrame
) -> Iterator[str]:
    """How many runs there are, and which model is ahead where several have the same questions.

    Args:
        board: see :func:`answer_board`.
        runs: behind it; they define the headline metrics, and of which less is better.
        tests: between runs, see :func:`both_ways`.
    """
    parts = [part for _, part in board.groupby(TESTABLE, sort=False)]
    models = counted(len(board.drop_duplicates(["model", "weights"])), "model")
    many = counted(board["run"].nunique(), "run")
    sets = f"{counted(board.groupby(ALIKE).ngroups, 'set')} of questions"
    yield f"{many} asked {models} {sets}{INTERVALS if board['ci_low'].notna().any() else ''}."
    several = [part for part in parts if part["run"].nunique() > 1]
    for part in parts if len(parts) <= EACH else several:
        first = part.iloc[0]
        lower = next(run for run in runs if str(run) == first["run"]).benchmark.lower_is_better
        outcomes = []
        for column, rows in part[part["metric"].isin(lower)].groupby("column", sort=False):
            best_first = (
                rows[rows["value"].notna()]
                .sort_values("value", ascending=lower[rows["metric"].iloc[0]])
                .to_dict("records")
            )
            text = f"{column} ({value_of(best_first[0])})" if best_first else str(column)
            outcomes.append((_ahead(best_first, tests, part["run"].nunique()), text))
        clauses = [f"{who} {listed(texts)}{how}" for (who, how), texts in grouped(outcomes).items()]
        about = f"{first['data']}, {counted(first['questions'], 'question')}"
        if len(board[(board[ALIKE] == first[ALIKE]).all(axis=1)]) > len(part):
            about += f", read by {first['parser']}"
        if clauses:
            yield f"On {first['benchmark']} ({about}) {'; '.join(clauses)}."
    if len(parts) > max(EACH, len(several)):
        yield f"There is a single run of each{' other' if several else ''} set."


def reading_warnings(board: pd.DataFrame) -> Iterator[str]:
    """Sets of questions whose replies different parsers or language models have read."""
    for _, part in board.groupby(ALIKE, sort=False):
        readings = part.drop_duplicates(["parser", "reader"])
        if len(readings) > 1:
            first = part.iloc[0]
            names = sorted(readings["parser"] + ", reader " + readings["reader"])
            yield from sentences(WORDS, "readings", first, names)


def _ahead(rows: Sequence[Row], tests: pd.DataFrame, runs: int) -> tuple[str, str]:
    """Who is ahead in a column, the best row first, and what tests of the same numbers say."""
    level = [row["label"] for row in rows if round(row["value"], 3) == round(rows[0]["value"], 3)]
    if len(rows) < 2:
        who = f"only {level[0]}" if level else "no run"
        return f"{who} {'has answers, with' if level and runs == 1 else 'has a value of'}", ""
    if len(level) > 1:
        return f"{listing(level)} are level in", ""
    p = {row["label"]: p_value(tests, rows[0], row) for row in rows[1:]}
    if alike := [name for name, value in p.items() if value >= ALPHA]:
        how = f"but not significantly ahead of {listing(alike)}"
    elif all(value < ALPHA for value in p.values()):  # missing is not below
        how = f"significantly ahead of {listing(p)}"
    else:
        how = "and whether that is chance is not known"
    return f"{level[0]} is ahead in", f", {how}"


def p_value(tests: pd.DataFrame, best: Row, other: Row) -> float:
    """Of a test of these very numbers, of several the largest; missing where there is none."""
    rows = tests[tests["metric"] == best["metric"]]
    rows = rows[rows["split"].isna() | (rows["split"] == best["split"])]
    for name, row in (("a", best), ("b", other)):
        same = np.isclose(rows[f"value_{name}"].astype(float), row["value"])
        rows = rows[same & (rows[name] == row["label"])]
    return float(rows["p"].max())


def both_ways(contrasts: pd.DataFrame, draws: int) -> pd.DataFrame:
    """Contrasts with ``p``, see :func:`~.sentences.tested`, each also the other way round.

    Args:
        contrasts: between runs; may be empty.
        draws: behind them.
    """
    table = contrasts.reindex(columns=_TESTED)
    table = table.assign(p=tested(table, draws))
    turned = {"a": "b", "b": "a", "value_a": "value_b", "value_b": "value_a"}
    return pd.concat([table, table.rename(columns=turned)])


def titled_parts(
    rows: pd.DataFrame, keys: Sequence[str], title: Callable[[pd.Series], str]
) -> NamedTables:
    """The rows of each set of questions and of the ``keys``; equal titles name the questions."""
    parts = [part for _, part in rows.groupby([*ALIKE, *keys], sort=False)]
    titles = [title(part.iloc[0]) for part in parts]
    for text, part in zip(titles, parts, strict=True):
        again = f" (questions {part['asked'].iloc[0]})" if titles.count(text) > 1 else ""
        yield text + again, part


def board_tables(board: pd.DataFrame) -> list[Table]:
    """A table for every set of questions, a row per run."""
    title = "{benchmark} on {data}, {questions:,} questions about {images:,} images, %"
    parts = titled_parts(board, [], lambda row: title.format(**row))
    return [_table(caption, part) for caption, part in parts]


def _table(caption: str, part: pd.DataFrame) -> Table:
    differing = [key for key in READING if part[key].nunique() > 1]
    runs, most = part.drop_duplicates("run"), part.groupby("run", sort=False)[[*_LOST]].max()
    names = [names_column("model", runs["label"])]
    names += [names_column(key, runs[key]) for key in differing]
    columns = {"questions": list(map(count_cell, runs["questions"]))}
    columns |= {of: list(map(count_cell, most[n])) for n, of in _LOST.items() if most[n].any()}
    numbers = part.set_index(["run", "column"]).to_dict("index")
    for name in part["column"].unique():
        rows = [numbers.get((run, name)) for run in runs["run"]]
        columns[name] = [estimate_cell(row) if row else Cell(MISSING) for row in rows]
    for name, words in _ASKING.items():
        if runs[name].fillna(0).any():
            columns[words] = list(map(_figure, runs[name]))
    notes = [
        f"{MISSING} of {', '.join(none['label'] + ' ' + none['column'])}: {reason}."
        for reason, none in part[part["reason"] != ""].groupby("reason", sort=False)
    ]
    same = [f"{k} {part[k].iloc[0]}" for k in READING if k not in differing and part[k].iloc[0]]
    notes += [f"Of every row: {', '.join(same)}."] if same else []
    notes.append("± half of the 95% interval.")
    of_numbers = [Column(Head(head), cells) for head, cells in columns.items()]
    columns_of_table = [*names, *of_numbers]
    return table_of(caption, columns_of_table, notes=notes, spreads=True, names=len(names))


def _figure(value: Any) -> Cell:
    """A number of tokens, a cost or a time."""
    if value is None or math.isnan(value):
        return Cell(MISSING)
    return Cell(f"{value:,.0f}" if value == int(value) else f"{value:.3g}", float(value))


def board_page(
    blocks: Sequence[Table | Text | Folded],
    runs: Sequence[BenchmarkRun],
    record: RunRecord,
    figures: Sequence[PlannedFigure] = (),
) -> Page:
    """The page ``benchmarks.html``.

    Args:
        blocks: see :func:`board_sentences`, :func:`board_tables` and
            :func:`~ood_lab.report.leaderboard.benchmark_table.metric_tables`.
        runs: are linked.
        record: ``title`` is read; all of it is shown.
        figures: behind the tables.
    """
    pages = [(run.record.title, run.folder / run.benchmark.page) for run in runs]
    links = [(title, page.absolute().as_uri()) for title, page in pages if page.exists()]
    return Page(
        title=record.title,
        sentence="Vision-language models",
        blocks=[
            Section("Results", blocks),
            Section("Figures", figures),
            Section("Pages", [Links(links)]),
        ],
        record=record,
    )


#: The table of what all calls took, and its metric.
SECONDS = "Seconds of all calls"
_RULE = (
    "A row is marked where the benchmark's own paired test (Holm-corrected) against the best row "
    f"of the same parser has p ≥ {ALPHA:g}. Rows without such a test: the difference is within "
    "sqrt(a² + b²), a and b half of the 95% intervals."
)
_KEPT = ["split", "metric", "value", "ci_low", "ci_high", "n", "unit", "n_asked"]


def metric_rows(runs: Sequence[BenchmarkRun], labels: Names, tests: pd.DataFrame) -> pd.DataFrame:
    """Every metric of the benchmarks' tables, of every run, form, set and data set.

    Args:
        runs: finished runs.
        labels: folder of a run → what its rows are called.
        tests: between runs, see :func:`~ood_lab.report.leaderboard.benchmark_table.both_ways`.

    Returns:
        ``benchmark, data, asked, parser, samples, reader, run, label`` (with the form of the
        questions), ``table, part, set, split, metric, column, better, value, ci_low, ci_high, n,
        unit, n_asked, best``; shares, but seconds. ``best``: the best value of its column, or not
        significantly worse.
    """
    rows = pd.concat([_rows_of(run, labels.get(str(run))) for run in runs], ignore_index=True)
    columns = rows.groupby([*TESTABLE, "table", "part", "split", "metric"], sort=False)
    best = [index for _, column in columns for index in _best(column, tests)]
    return rows.assign(best=rows.index.isin(best))


def _rows_of(run: BenchmarkRun, label: str | None) -> pd.DataFrame:
    """The rows of one run, whose label is else its model; the first way of unparsed answers."""
    facts, results = run.benchmark, first_way(run.results)
    results = results[results[[*LEVELS]].isna().all(axis=1)]
    parts = results[PART].fillna("").astype(str) if PART in results else [""] * len(results)
    places = [_place(part, facts.forms, facts.finer) for part in parts]
    of_rows = pd.DataFrame(places, results.index, ["part", "form"], object)
    rows = results[_KEPT].join(of_rows).dropna(subset="form")
    columns = pd.DataFrame(
        [(table, *column) for table, listed in facts.tables.items() for column in listed],
        columns=["table", "metric", "column", "better"],
    )
    times = [
        {"split": split, "metric": "seconds", "value": value, "form": form, "part": ""}
        for form, split, value in run.record.seconds_of_calls
    ]
    took = pd.DataFrame(times).assign(table=SECONDS, column="s", better="")
    rows = pd.concat([columns.merge(rows, on="metric"), *([took] if times else [])])
    words = {split: facts.sets.get(split, split.replace("_", " ")) for split in rows["split"]}
    label = label or str(next(iter(results["model"]), ""))
    names = {"": label} | {form: f"{label}, {name}" for form, name in facts.forms.items()}
    sets, forms = rows["split"].map(words), rows["form"].map(names)
    return rows.assign(**run.about, set=sets, label=forms).drop(columns=["questions", "images"])


def _place(part: str, forms: Names, finer: Sequence[str]) -> tuple[str, str | None]:
    """The data set and the form of a part; no form where tables of models do not show it."""
    first, _, rest = part.partition(", ")
    form, rest = (first, rest) if first in forms else ("", part)
    return rest, form if not rest or rest.split(" ")[0] in finer else None


def _best(column: pd.DataFrame, tests: pd.DataFrame) -> list[Hashable]:
    """The best row of a column, and those behind it that are not significantly worse."""
    better, rows = column["better"].iloc[0], column[column["value"].notna()]
    if not better or len(rows) < 2:
        return []

    def not_worse(row: Row, leader: Row) -> bool:
        p = p_value(tests, leader, row)
        return within_noise(row, leader) if math.isnan(p) else p >= ALPHA

    rows = rows.assign(sampling_half_width=(rows["ci_high"] - rows["ci_low"]) / 2)
    return best_rows(rows, better, not_worse)


def metric_tables(rows: pd.DataFrame) -> list[Table]:
    """A table of every part of :func:`metric_rows`: a row a model, a group of columns a set."""
    tables = []
    for title, part in _parts(rows):
        sizes = part.groupby("set")["n_asked"].max().dropna()
        groups = {
            name: Group(str(name), f"{int(sizes[name]):,} questions" if name in sizes else "")
            for name in part["set"].unique()
        }
        timed = part["table"].iloc[0] == SECONDS
        show: NumberFormat = "{:,.1f}".format if timed else percent
        cells = {
            (row["label"], Head(row["column"], group=groups[row["set"]])): estimate_cell(row, show)
            for row in part.to_dict("records")
        }
        models = part["label"].unique()
        marks = [star_sentence(tested=True), _RULE] if part["best"].any() else []
        notes = ["The sum over all calls of a set."] if timed else ["± half of the 95% interval."]
        caption = title if timed else f"{title}, %"
        names = [names_column("model", models)]
        notes = [*marks, *notes]
        tables.append(pivoted(caption, names, models, cells, notes=notes, spreads=not timed))
    return tables


def metric_figures(rows: pd.DataFrame) -> Iterator[PlannedFigure]:
    """A figure of every table: a panel a metric; the fewer of models and sets are the colours."""
    for number, (title, part) in enumerate(_parts(rows[rows["table"] != SECONDS])):
        models = {name: wrapped(name, 24) for name in part["label"]}
        sets = {name: name for name in part["set"]}
        metrics = dict(zip(part["metric"], part["column"], strict=True))
        few, many = sorted([("set", sets), ("label", models)], key=lambda keys: len(keys[1]))
        slug = re.sub(r"[^a-z0-9]+", "_", f"{title} {number}".lower()).strip("_")
        draw = partial(
            bar_panels,
            part,
            metrics,
            many[1],
            f"{title}. 95% intervals.",
            row=many[0],
            series=None if len(sets) == 1 else few,
        )
        yield PlannedFigure(slug, title, "Every metric of the table, with 95% intervals.", draw)


def _parts(rows: pd.DataFrame) -> NamedTables:
    """The rows of each table with its title."""

    def title(row: pd.Series) -> str:
        return ", ".join(
            filter(None, (f"{row['benchmark']} on {row['data']}", row["part"], row["table"]))
        )

    return titled_parts(rows, ["table", "part"], title)
