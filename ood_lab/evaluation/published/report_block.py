"""The published numbers of the data of a run, for its page."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import groupby
from typing import Any

import pandas as pd

from ood_lab.evaluation.published.numbers import PublishedRow, read_references
from ood_lab.evaluation.published.verification import (
    ABSENT,
    compare,
    numbers_of,
    protocol_differences,
)
from ood_lab.report.rendering.blocks import Block, Folded, Text
from ood_lab.report.rendering.table import Cell, Head, Table, name_cell
from ood_lab.schema.run_record import RunRecord

_HEADS = ("method", "dataset", "metric", "paper", "this run", "difference")


def published_blocks(results: pd.DataFrame, record: RunRecord, data: str) -> list[Block]:
    """A table of each published table about data of this name that the run has numbers of.

    Args:
        results: of the run.
        record: of the run.
        data: ``data.name`` of the run.
    """
    rows = [row for row in read_references() if row.reference.protocol.get(("dataset",)) == data]
    if not rows:
        return []
    numbers, facts = numbers_of(results, record, data)
    blocks: list[Block] = []
    for name, group in groupby(rows, lambda row: row.reference.name):
        of_table = list(group)
        ours = compare(of_table, numbers, facts).to_dict("records")
        pairs = [p for p in zip(of_table, ours, strict=True) if p[1]["verdict"] != ABSENT]
        if pairs:
            blocks.append(_published(name, pairs, facts))
    return blocks


def _published(
    name: str,
    pairs: Sequence[tuple[PublishedRow, Mapping[Hashable, Any]]],
    facts: Mapping[str, Any],
) -> Folded:
    about = pairs[0][0].reference.about
    differences = protocol_differences([row for row, _ in pairs], facts)
    words = "; ".join(
        f"{d['field']}: {d['run']} here, {d['paper']} in the paper"
        for d in differences.to_dict("records")
    )
    how = f"The protocols differ. {words}." if words else "All that is stated agrees."
    note = f"{how} Compare: python eval.py task=verify task.run_folder=RUN task.row={name}"
    rows = [
        [
            *map(name_cell, (row.detector, row.ood, row.metric)),
            Cell(row.printed, row.value),
            Cell(f"{ours['run']:.2f}", ours["run"], _interval(ours)),
            Cell(f"{ours['difference']:+.2f}", ours["difference"]),
        ]
        for row, ours in pairs
    ]
    heads = [Head(text, "ascending") for text in _HEADS[:3]] + [Head(text) for text in _HEADS[3:]]
    table = Table("The paper's numbers and this run's", heads, rows, names=3)
    title = f"{about['title']} (arXiv {about['arxiv']}, {about['table']})"
    return Folded(title, [Text(note, "note"), table], page_only=True)


def _interval(ours: Mapping[Hashable, Any]) -> str:
    return "" if pd.isna(ours["ci_low"]) else f"{ours['ci_low']:.1f} to {ours['ci_high']:.1f}"
