"""Differences between groups of answers, as tables for the terminal and the page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from rich.console import RenderableType
from rich.text import Text

from ood_lab.report.columns import Column, beside, build, numbers, pack
from ood_lab.report.html_tables import Cell, Head, HtmlTable
from ood_lab.report.protocol import percent

#: What the p-values are.
P_NOTE = (
    "p: two-sided, normal approximation with the bootstrap's standard error, at least 1 / (draws + "
    "1); then Holm-corrected."
)


def difference_tables(
    table: pd.DataFrame,
    names: Mapping[Any, str],
    metrics: Mapping[str, str],
    title: str,
    width: int,
) -> Iterator[RenderableType]:
    """One row per pair, with intervals and p-values; as many tables as the width demands.

    Args:
        table: see :func:`ood_lab.lvlm.differences.pairwise`.
        names: group → what it is called; others are called what they are.
        metrics: metric → what it is called; others are not shown.
        title: of every table.
        width: of the terminal.
    """
    pairs = list(dict.fromkeys(zip(table["a"], table["b"], strict=True)))
    found = {(row["a"], row["b"], row["metric"]): row for row in table.to_dict("records")}
    heads = [f"{names.get(a, a)} - {names.get(b, b)}" for a, b in pairs]
    columns = [Column(("",), [Text(head, "bold") for head in heads])]
    for metric, words in metrics.items():
        rows = [found[a, b, metric] for a, b in pairs]
        texts = [
            f"{100 * r['difference']:+.1f} [{100 * r['ci_low']:+.1f}, {100 * r['ci_high']:+.1f}]"
            for r in rows
        ]
        cells = beside(numbers(texts), numbers([p_text(r["p_holm"]) for r in rows]))
        columns.append(Column((f"{words}     p",), cells))
    for part in pack(columns, width):
        yield Text()
        yield build(part, title)
    yield Text(P_NOTE, "dim")


def difference_table(
    caption: str, table: pd.DataFrame, names: Mapping[Any, str], metrics: Mapping[str, str]
) -> HtmlTable:
    """One row per pair and metric. Arguments as in :func:`difference_tables`."""
    heads = [Head(name, "ascending") for name in ("first", "second", "metric")]
    heads += [Head(name) for name in ("first, %", "second, %", "difference", "p (Holm)")]
    cells = []
    for row in table[table["metric"].isin(metrics)].to_dict("records"):
        pair = [Cell(str(names.get(row[key], row[key])), row[key]) for key in ("a", "b")]
        values = [Cell(percent(row[key]), row[key]) for key in ("value_a", "value_b")]
        difference, low, high = (100 * row[key] for key in ("difference", "ci_low", "ci_high"))
        shown = Cell(f"{difference:+.1f}", difference, f"{low:+.1f} to {high:+.1f}")
        p_value = Cell(p_text(row["p_holm"]), row["p_holm"])
        cells.append([*pair, Cell(metrics[row["metric"]]), *values, shown, p_value])
    return HtmlTable(caption, heads, cells)


def p_text(value: float) -> str:
    """A p-value for people."""
    if math.isnan(value):
        return "N/A"
    return "<.001" if value < 0.001 else f"{value:.3f}".removeprefix("0")
