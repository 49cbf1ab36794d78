"""The hierarchy tables of a leaderboard: accuracy of levels, and recall of labels, by model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from ood_lab.report.leaderboard.finished_runs import FinishedRun
from ood_lab.report.leaderboard.long_table import aggregate, once
from ood_lab.report.leaderboard.run_names import differing, trainings
from ood_lab.report.leaderboard.significance import mark_best
from ood_lab.report.rendering.metric_definitions import MISSING, percent
from ood_lab.report.rendering.table import Cell, Group, Head, Table, count_cell
from ood_lab.schema.results import Names

_ALL = "all"
_DERIVED = "†"
_COLUMNS = [
    *("model", "training", "run", "seeds", "n_seeds", "label_level", "subset", "source", "n"),
    *("value", "seed_std", "sampling_half_width", "best", "metric", "name"),
]
_SEPARATOR = "\t"
_CATEGORY = "category"


def hierarchy_rows(runs: Sequence[FinishedRun]) -> pd.DataFrame:
    """Accuracies and recalls of runs with a hierarchy table, seeds of one configuration together.

    ``metric`` is ``accuracy`` of a level, or ``recall`` of its label ``name``. ``best``: within
    noise of the best of its level, subset and label, by the rule of
    :func:`~ood_lab.report.leaderboard.significance.mark_best`. Empty when no run has such a table.
    """
    single = pd.DataFrame(row for run in runs for row in _rows_of(run))
    if single.empty:
        return pd.DataFrame(columns=_COLUMNS)
    single = once(single, ["run"])
    rows = aggregate(single)
    rows["training"] = rows["run"].map(trainings(runs))
    rows["best"] = mark_best(rows, {})
    split = rows["dataset"].str.split(_SEPARATOR, expand=True)
    named = rows.assign(label_level=split[0], subset=split[1], name=split[2], n=rows["n_id"])
    source = single.groupby(["run", "dataset"], sort=False)["source"].first().reset_index()
    return named.merge(source, on=["run", "dataset"], how="left")[_COLUMNS]


def recall_tables(rows: pd.DataFrame) -> list[Table]:
    """A table per subset: accuracy of every level and recall of its labels, a column per model."""
    if rows.empty:
        return []
    models, keys = _models(rows[rows["metric"] == "accuracy"])
    names = {m["run"]: " ".join(str(m[key]) for key in keys if m[key]) for m in models}
    parts = rows.groupby("subset", sort=False)
    return [_recalls(part, names, str(subset)) for subset, part in parts]


def _recalls(rows: pd.DataFrame, names: Names, subset: str) -> Table:
    cells = {(r["run"], r["label_level"], r["name"]): r for r in rows.to_dict("records")}
    places = list(rows["label_level"].unique())
    labels = sorted(dict.fromkeys(key[1:] for key in cells), key=lambda key: places.index(key[0]))
    shown = []
    for place, (level, label) in enumerate(labels):
        found = [cells.get((run, level, label)) for run in names]
        n = max(int(row["n"]) for row in found if row)
        cell = Cell(label or "overall accuracy", place)
        shown.append([Cell(level, place), cell, count_cell(n), *map(_cell, found)])
    heads = [Head("level", "ascending"), Head("label", "ascending"), Head("n")]
    caption = f"Recall of every label in %, by model: {subset}"
    first = "Bold or *: within noise of the best of the row. Recall: independent accuracy."
    notes = (first, *_notes(rows)[1:])
    return Table(caption, [*heads, *map(Head, names.values())], shown, [], 2, notes)


def _models(rows: pd.DataFrame) -> tuple[list[dict[Any, Any]], list[str]]:
    """The models, the most accurate at the finest level first, and what tells them apart."""
    levels = [level for level in rows["label_level"].unique() if level != _CATEGORY]
    finest = rows[(rows["subset"] == _ALL) & (rows["label_level"] == [_CATEGORY, *levels][-1])]
    models = finest.sort_values("value", ascending=False, kind="stable")
    models["training"] = differing(models["training"])
    names = ["model", "training"] if models["training"].any() else ["model"]
    names += ["run"] if models.duplicated(names).any() else []
    return models.to_dict("records"), names


def hierarchy_wide(rows: pd.DataFrame) -> Table | None:
    """One row per model; overall accuracy of every level, for all images and by category."""
    rows = rows[rows["metric"] == "accuracy"]
    if rows.empty:
        return None
    records = rows.to_dict("records")
    cells = {(r["run"], r["subset"], r["label_level"]): r for r in records}
    levels = list(rows["label_level"].unique())
    # A run that reads no category head lacks that level: it stands first, as in single runs.
    levels.sort(key=lambda level: level != _CATEGORY)
    columns = [(s, x) for s in rows["subset"].unique() for x in levels if _any(rows, s, x)]
    models, names = _models(rows)
    shown = [
        [
            *(Cell(str(model[name]), str(model[name])) for name in names),
            *(_cell(cells.get((model["run"], s, level))) for s, level in columns),
        ]
        for model in models
    ]
    groups = [Group("", "", len(names))]
    for subset in rows["subset"].unique():
        n = int(rows.loc[rows["subset"] == subset, "n"].max())
        groups.append(Group(subset, f"n {n:,}", sum(s == subset for s, _ in columns)))
    heads = [Head(name, "ascending") for name in names] + [Head(level) for _, level in columns]
    caption = (
        "Hierarchical classification: overall accuracy (micro) in % by level, on the ID test set."
    )
    return Table(caption, heads, shown, groups, len(names), _notes(rows))


def _any(rows: pd.DataFrame, subset: str, level: str) -> bool:
    return bool(((rows["subset"] == subset) & (rows["label_level"] == level)).any())


def _cell(row: dict[Any, Any] | None) -> Cell:
    if row is None or math.isnan(row["value"]):
        return Cell(MISSING)
    std, half = row["seed_std"], row["sampling_half_width"]
    spread = "" if math.isnan(std) else f" ± {percent(std)}"
    mark = _DERIVED if row["source"] == "derived" else ""
    text = percent(row["value"]) + spread + mark
    return Cell(text, row["value"], f"±{percent(half)}", best=bool(row["best"]))


def _notes(rows: pd.DataFrame) -> tuple[str, ...]:
    notes = [
        "Bold or *: within noise of the best of the column. All rows with several seeds: Welch's "
        "t-test over the seeds, 5%, not corrected. Else: a difference within sqrt(a² + b²) of "
        "the two 95% intervals ±a and ±b (Wilson). Never: rows behind a worse one."
    ]
    if (rows["source"] == "derived").any():
        notes.append(f"{_DERIVED}: the parent of the predicted class, not a head of the network.")
    if (rows["n_seeds"] > 1).any():
        notes.append("a ± b: mean and standard deviation over the seeds of a configuration.")
    return tuple(notes)


def _rows_of(run: FinishedRun) -> Iterator[dict[str, Any]]:
    if run.hierarchy is None:
        return
    for row in run.hierarchy.to_dict("records"):
        label = row["name"] if row["metric"] == "recall" else ""
        yield {
            "model": row["model"],
            "training": run.training,
            "run": run.sweep,
            "weights": run.weights,
            "seed": run.seed,
            "detector": None,
            "settings": None,
            "metric": row["metric"],
            "dataset": _SEPARATOR.join((row["label_level"], row["subset"], str(label))),
            "source": row["source"],
            "n_id": row["n"],
            "n_ood": 0,
            "value": row["value"],
            "sampling_half_width": (row["ci_high"] - row["ci_low"]) / 2,
            "low": row["ci_low"],
        }
