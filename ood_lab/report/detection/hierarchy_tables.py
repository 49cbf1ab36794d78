"""The hierarchy tables of a run as plain data for the page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from ood_lab.report.rendering.metric_definitions import MISSING, percent
from ood_lab.report.rendering.table import Cell, Group, Head, Table

_ALL = "all"
Row = Mapping[Any, Any]


def hierarchy_tables(hierarchy: pd.DataFrame) -> list[Table]:
    """Overall accuracy of each level, then the recall of the labels of each level, finest first."""
    subsets = list(hierarchy["subset"].unique())
    levels = list(hierarchy["label_level"].unique())
    tables = [_accuracies(hierarchy, levels, subsets)]
    return tables + [
        _recalls(hierarchy[hierarchy["label_level"] == level], level) for level in levels[::-1]
    ]


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


def _accuracies(hierarchy: pd.DataFrame, levels: list[str], subsets: list[str]) -> Table:
    rows = hierarchy[hierarchy["metric"] == "accuracy"]
    cells = {(r["label_level"], r["subset"]): r for r in rows.to_dict("records")}
    of_level = rows.drop_duplicates("label_level").set_index("label_level")["source"]
    shown = [
        [
            Cell(level, place),
            *(cell for s in subsets for cell in _pair(cells.get((level, s)))),
            Cell(of_level[level], of_level[level]),
        ]
        for place, level in enumerate(levels)
    ]
    heads = [Head("level", "ascending"), *_heads(len(subsets), "accuracy")]
    groups = [Group("", "", 1), *(Group(s, "", 2) for s in subsets), Group("", "", 1)]
    heads.append(Head("predicted by", "ascending"))
    return Table("Overall accuracy (micro) in %", heads, shown, groups)


def _recalls(hierarchy: pd.DataFrame, level: str) -> Table:
    rows = hierarchy[hierarchy["metric"] == "recall"]
    subsets = list(rows["subset"].unique())
    cells = {(r["name"], r["subset"]): r for r in rows.to_dict("records")}
    names = list(rows["name"].unique())
    shown = [
        [Cell(str(name), place), *(c for s in subsets for c in _pair(cells[name, s]))]
        for place, name in enumerate(names)
    ]
    heads = [Head(level, "ascending"), *_heads(len(subsets), "recall")]
    groups = [Group("", "", 1), *(Group(s, "", 2) for s in subsets)] if subsets != [_ALL] else []
    return Table(f"Recall in %, {level}", heads, shown, groups)


def _heads(subsets: int, metric: str) -> list[Head]:
    return [Head(metric), Head("n")] * subsets


def _pair(row: Row | None) -> list[Cell]:
    """The value with its interval, and n."""
    if row is None:
        return [Cell(""), Cell("")]
    n = Cell(f"{row['n']:,}", row["n"])
    if math.isnan(row["value"]):
        return [Cell(MISSING), n]
    ends = f"{percent(row['ci_low'])} to {percent(row['ci_high'])}"
    return [Cell(percent(row["value"]), row["value"], ends), n]
