"""The hierarchy tables of a leaderboard: accuracy of levels, and recall of labels, by model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from ood_lab.report.leaderboard.detector_runs import DetectorRun
from ood_lab.report.leaderboard.long_table import ROW, WORDS, aggregate, once
from ood_lab.report.leaderboard.run_names import differing, name_columns, trainings
from ood_lab.report.leaderboard.significance import mark_best
from ood_lab.report.rendering.prose import sentences
from ood_lab.report.rendering.table import (
    Cell,
    Column,
    Group,
    Head,
    Table,
    count_cell,
    mean_cell,
    names_column,
    pivoted,
)
from ood_lab.schema.results import Row, of_kind

_ALL = "all"
_DERIVED = "†"
_KEYS = ["label_level", "subset", "name", "source"]
_COLUMNS = [
    *("model", "training", "run", "seeds", "n_seeds", "label_level", "subset", "source", "n"),
    *("value", "seed_std", "sampling_half_width", "best", "metric", "name"),
]
_CATEGORY = "category"


def hierarchy_rows(runs: Sequence[DetectorRun]) -> pd.DataFrame:
    """Accuracies and recalls of runs with a hierarchy table, seeds of one configuration together.

    ``metric`` is ``accuracy`` of a level, or ``recall`` of its label ``name``. ``best``: within
    noise of the best of its level, subset and label, by the rule of
    :func:`~ood_lab.report.leaderboard.significance.mark_best`. Empty when no run has such a table.
    """
    tables = [_rows_of(run) for run in runs if len(of_kind(run.results, "hierarchy"))]
    if not tables:
        return pd.DataFrame(columns=_COLUMNS)
    rows = aggregate(once(pd.concat(tables, ignore_index=True), ["run"]), [*ROW, *_KEYS])
    rows["training"] = rows["run"].map(trainings(runs))
    rows["best"] = mark_best(rows, {})
    return rows.rename(columns={"n_id": "n"})[_COLUMNS]


def _rows_of(run: DetectorRun) -> pd.DataFrame:
    """The rows of one run; ``dataset`` is what is compared between models."""
    rows = of_kind(run.results, "hierarchy").reindex(
        columns=["metric", *_KEYS, "n", "value", "ci_low", "ci_high"]
    )
    rows["name"] = rows["name"].where(rows["metric"] == "recall", "")
    return rows.assign(
        **run.columns,
        detector=None,
        settings=None,
        dataset=rows["label_level"] + "\t" + rows["subset"] + "\t" + rows["name"].astype(str),
        n_ood=0,
    ).rename(columns={"n": "n_id", "ci_low": "low", "ci_high": "high"})


def recall_tables(rows: pd.DataFrame) -> list[Table]:
    """A table per subset: accuracy of every level and recall of its labels, a column per model."""
    if rows.empty:
        return []
    models, keys = _models(rows[rows["metric"] == "accuracy"])
    names = {m["run"]: " ".join(str(m[key]) for key in keys if m[key]) for m in models}
    tables = []
    for subset, part in rows.groupby("subset", sort=False):
        cells = {
            ((r["label_level"], r["name"]), Head(names[r["run"]])): _cell(r)
            for run in names
            for r in part[part["run"] == run].to_dict("records")
        }
        places = list(part["label_level"].unique())
        labels = sorted(
            dict.fromkeys(key for key, _ in cells), key=lambda key: places.index(key[0])
        )
        sizes = part.groupby(["label_level", "name"])["n"].max()
        columns = [
            names_column("level", (level for level, _ in labels), ordered=True),
            names_column("label", (name or "overall accuracy" for _, name in labels), ordered=True),
            Column(Head("n"), [count_cell(sizes[label]) for label in labels]),
        ]
        notes = sentences(WORDS, "hierarchy", part, _DERIVED, recall=True)
        caption = f"Recall of every label in %, by model: {subset}"
        table = pivoted(caption, columns, labels, cells, notes=notes)
        tables.append(replace(table, names=2))
    return tables


def _models(rows: pd.DataFrame) -> tuple[Sequence[Row], list[str]]:
    """The models, the most accurate at the finest level first, and what tells them apart."""
    levels = [level for level in rows["label_level"].unique() if level != _CATEGORY]
    finest = rows[(rows["subset"] == _ALL) & (rows["label_level"] == [_CATEGORY, *levels][-1])]
    models = finest.sort_values("value", ascending=False, kind="stable")
    models["training"] = differing(models["training"])
    return models.to_dict("records"), name_columns(models, "model")


def hierarchy_wide(rows: pd.DataFrame) -> list[Table]:
    """A row per model; overall accuracy of every level, for all images and by category."""
    rows = rows[rows["metric"] == "accuracy"]
    if rows.empty:
        return []
    # A run that reads no category head lacks that level: it stands first, as in single runs.
    rows = rows.sort_values("label_level", key=lambda of: of != _CATEGORY, kind="stable")
    models, names = _models(rows)
    sizes = rows.groupby("subset")["n"].max()
    groups = {subset: Group(str(subset), f"n {int(n):,}") for subset, n in sizes.items()}
    cells = {
        (r["run"], Head(r["label_level"], group=groups[r["subset"]])): _cell(r)
        for r in rows.to_dict("records")
    }
    runs = [model["run"] for model in models]
    columns = [names_column(name, (model[name] for model in models)) for name in names]
    caption = (
        "Hierarchical classification: overall accuracy (micro) in % by level, on the ID test set."
    )
    notes = sentences(WORDS, "hierarchy", rows, _DERIVED)
    return [pivoted(caption, columns, runs, cells, notes=notes)]


def _cell(row: Row) -> Cell:
    return mean_cell(row, note=_DERIVED * (row["source"] == "derived"))
