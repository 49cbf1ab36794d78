"""Repeated samples of questions: the spread of numbers and of answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from ood_lab.report.rendering.metric_definitions import percent
from ood_lab.report.rendering.table import Cell, Head, Table, name_cell
from ood_lab.schema.results import PART, Names

#: Metric: share of the questions to which all samples say the same.
AGREEMENT = "agreement"


def sample_spread(
    results: Sequence[pd.DataFrame],
    judged: Sequence[pd.DataFrame],
    metrics: Names,
    joined: Mapping[str, tuple[str, str]],
) -> pd.DataFrame:
    """Mean and standard deviation (``ddof`` 1) of every metric over the samples, by set.

    Args:
        results: of whole sets, one table a sample; unparsed answers are treated in one way.
        judged: single answers, one table a sample, in the same order.
        metrics: those in the table.
        joined: sets that consist of two values of ``split``; the second is in no other set.

    Returns:
        ``split, metric, mean, sd, low, high, samples``; ``low`` and ``high`` are the least and the
        largest value. The rows of :data:`AGREEMENT` have their value as ``mean``.
    """
    every = pd.concat(results)
    values = every[every["metric"].isin(metrics)].groupby(["split", "metric"], sort=False)["value"]
    table = values.agg(mean="mean", sd="std", low="min", high="max").reset_index()
    said = pd.concat([each["parsed"].fillna("").reset_index(drop=True) for each in judged], axis=1)
    same = said.nunique(axis=1) == 1
    rows: list[dict[str, Any]] = [
        {"split": split, "metric": AGREEMENT, "mean": same[part.to_numpy()].mean()}
        for split in dict.fromkeys(table["split"])
        if (part := _of(judged[0], split, joined)).any()
    ]
    return pd.concat([table, pd.DataFrame(rows)], ignore_index=True).assign(samples=len(results))


def _of(judged: pd.DataFrame, split: str, joined: Mapping[str, tuple[str, str]]) -> pd.Series:
    """The rows of a set; one that no row names is all of them together."""
    if "split" not in judged:
        return pd.Series(True, judged.index)
    own = judged["split"].isin(joined.get(split, (split,)))
    return own if own.any() else ~judged["split"].isin([rest for _, rest in joined.values()])


def spread_rows(spread: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Rows of a results table: mean and standard deviation of each set and metric."""
    for row in spread.to_dict("records"):
        known = {k: row[k] for k in ("split", "metric")} | {"n": row["samples"], "unit": "sample"}
        for name in ("mean",) if row["metric"] == AGREEMENT else ("mean", "sd"):
            yield {**known, PART: f"{name} of {row['samples']} samples", "value": row[name]}


def spread_table(spread: pd.DataFrame, names: Names, metrics: Names) -> Table:
    """Mean ± standard deviation of each set and metric."""
    words = {**metrics, AGREEMENT: "same answer each time"}
    shown = {m: text for m, text in words.items() if (spread["metric"] == m).any()}
    found = {(row["split"], row["metric"]): row for row in spread.to_dict("records")}
    cells = [
        [name_cell(names.get(split, split), place), *(_cell(found.get((split, m))) for m in shown)]
        for place, split in enumerate(dict.fromkeys(spread["split"]))
    ]
    title = f"{spread['samples'].iloc[0]} samples of each question: mean ± standard deviation, %"
    note = "All other numbers are of the first sample of each question."
    heads = [Head("split", "ascending"), *map(Head, shown.values())]
    return Table(title, heads, cells, notes=[note])


def _cell(row: Mapping[Any, Any] | None) -> Cell:
    if row is None or pd.isna(row["mean"]):
        return Cell("N/A")
    spread = "" if pd.isna(row["sd"]) else f" ± {percent(row['sd'])}"
    return Cell(f"{percent(row['mean'])}{spread}", row["mean"])
