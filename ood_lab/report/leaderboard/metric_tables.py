"""All metrics of several models on the same questions, as papers print them: tables, bars."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd

from ood_lab.report.figures.bars import bar_panels
from ood_lab.report.figures.layout import wrapped
from ood_lab.report.leaderboard.benchmark_table import (
    ALIKE,
    TESTABLE,
    BenchmarkRun,
    p_value,
    titled_parts,
)
from ood_lab.report.leaderboard.significance import Row, best_rows, within_noise
from ood_lab.report.rendering.blocks import PlannedFigure
from ood_lab.report.rendering.metric_definitions import percent, star_sentence
from ood_lab.report.rendering.sentences import ALPHA
from ood_lab.report.rendering.table import (
    Cell,
    Group,
    Head,
    Table,
    names_column,
    number_cell,
    pivoted,
)
from ood_lab.schema.image_columns import LEVELS
from ood_lab.schema.results import PART, NamedTables, Names, first_way

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
    rows = results[_KEPT].assign(part=[part for _, part in places])
    rows["form"] = pd.Series([form for form, _ in places], rows.index, object)
    rows = rows[rows["form"].notna()]
    columns = pd.DataFrame(
        [(table, *column) for table, listed in facts.tables.items() for column in listed],
        columns=["table", "metric", "column", "better"],
    )
    times = [
        {"split": split, "metric": "seconds", "value": value, "form": form, "part": ""}
        for form, of_form in (run.record.asking.seconds.items() if run.record.asking else ())
        for split, value in of_form.items()
    ]
    took = pd.DataFrame(times).assign(table=SECONDS, column="s", better="")
    rows = pd.concat([columns.merge(rows, on="metric"), *([took] if times else [])])
    words = {split: facts.sets.get(split, split.replace("_", " ")) for split in rows["split"]}
    label = label or str(next(iter(results["model"]), ""))
    names = {"": label} | {form: f"{label}, {name}" for form, name in facts.forms.items()}
    about = {key: run.about[key] for key in ALIKE} | run.reading | {"run": str(run)}
    return rows.assign(**about, set=rows["split"].map(words), label=rows["form"].map(names))


def _place(part: str, forms: Names, finer: Sequence[str]) -> tuple[str | None, str]:
    """The form and the data set of a part; no form where tables of models do not show it."""
    first, _, rest = part.partition(", ")
    form, rest = (first, rest) if first in forms else ("", part)
    return form if not rest or rest.split(" ")[0] in finer else None, rest


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
        cells = {
            (row["label"], Head(row["column"], group=groups[row["set"]])): _cell(row)
            for row in part.to_dict("records")
        }
        models = part["label"].unique()
        marks = [star_sentence(tested=True), _RULE] if part["best"].any() else []
        timed = part["table"].iloc[0] == SECONDS
        notes = ["The sum over all calls of a set."] if timed else ["± half of the 95% interval."]
        caption = title if timed else f"{title}, %"
        options: Any = {"notes": [*marks, *notes], "spreads": not timed}
        names = [names_column("model", models)]
        tables.append(pivoted(caption, names, models, cells, **options))
    return tables


def _cell(row: Mapping[Any, Any]) -> Cell:
    show: Callable[[float], str] = "{:,.1f}".format if row["table"] == SECONDS else percent
    value, low, high = (float(row[name]) for name in ("value", "ci_low", "ci_high"))
    return number_cell(value, low, high, show, best=bool(row["best"]))


def metric_figures(rows: pd.DataFrame) -> Iterator[PlannedFigure]:
    """A figure of every table: a panel a metric; the fewer of models and sets are the colours."""
    for number, (title, part) in enumerate(_parts(rows[rows["table"] != SECONDS])):
        models = {name: wrapped(name, 24) for name in dict.fromkeys(part["label"])}
        sets = {name: name for name in dict.fromkeys(part["set"])}
        metrics = dict(zip(part["metric"], part["column"], strict=True))
        shown: dict[str, Any] = {"row": "label", "series": ("set", sets)}
        names = models
        if len(models) < len(sets):
            shown, names = {"row": "set", "series": ("label", models)}, sets
        elif len(sets) == 1:
            shown["series"] = None
        slug = re.sub(r"[^a-z0-9]+", "_", f"{title} {number}".lower()).strip("_")
        draw = partial(bar_panels, part, metrics, names, f"{title}. 95% intervals.", **shown)
        yield PlannedFigure(slug, title, "Every metric of the table, with 95% intervals.", draw)


def _parts(rows: pd.DataFrame) -> NamedTables:
    """The rows of each table with its title."""

    def title(row: pd.Series) -> str:
        return ", ".join(
            filter(None, (f"{row['benchmark']} on {row['data']}", row["part"], row["table"]))
        )

    return titled_parts(rows, ["table", "part"], title)
