"""The hierarchy tables of a run as plain data for the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ood_lab.report.rendering.table import (
    Cell,
    Column,
    Group,
    Head,
    Table,
    count_cell,
    estimate_cell,
    name_cell,
    table_of,
)

_ALL = "all"
Row = Mapping[Any, Any]


def hierarchy_tables(hierarchy: pd.DataFrame) -> list[Table]:
    """Overall accuracy of each level, then the recall of the labels of each level, finest first."""
    rows = hierarchy[hierarchy["metric"] == "accuracy"]
    source = rows.drop_duplicates("label_level")["source"]
    predicted = Column(Head("predicted by", "ascending"), [*map(name_cell, source)], Group())
    columns = [*_columns(rows, "level", "label_level", "accuracy"), predicted]
    tables = [table_of("Overall accuracy (micro) in %", columns)]
    recalls = hierarchy[hierarchy["metric"] == "recall"]
    for level in hierarchy["label_level"].unique()[::-1]:
        rows = recalls[recalls["label_level"] == level]
        tables.append(table_of(f"Recall in %, {level}", _columns(rows, level, "name", "recall")))
    return tables


def hierarchy_notes(hierarchy: pd.DataFrame) -> list[str]:
    """What the tables mean, a sentence each."""
    notes = [
        "Accuracy is the share of all images that are right. Recall is the share of the images of "
        "a class that are given that class (per-class or independent accuracy), not precision."
    ]
    if (hierarchy["source"] == "derived").any():
        notes.append(
            "Predicted by: a head of the network for that level; derived: the parent of the "
            "predicted class."
        )
    return notes


def _columns(rows: pd.DataFrame, head: str, key: str, metric: str) -> list[Column]:
    """The names in ``key``, and a value and n of each of them in every subset."""
    found = {(r[key], r["subset"]): r for r in rows.to_dict("records")}
    names = list(rows[key].unique())
    subsets = list(rows["subset"].unique())
    columns = [
        Column(
            Head(head, "ascending"), [name_cell(name, place) for place, name in enumerate(names)]
        )
    ]
    for subset in subsets:
        group = Group("" if subsets == [_ALL] and metric == "recall" else subset)
        pairs = [_pair(found.get((name, subset))) for name in names]
        for text, cells in zip((metric, "n"), zip(*pairs, strict=True), strict=True):
            columns.append(Column(Head(text), cells, group))
    return columns


def _pair(row: Row | None) -> list[Cell]:
    """The value with its interval, and n."""
    if row is None:
        return [Cell(""), Cell("")]
    return [estimate_cell(row), count_cell(row["n"])]
