"""Metrics of answers as tables for the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from rich.console import RenderableType
from rich.text import Text

from ood_lab.report.columns import Column, build, numbers, pack
from ood_lab.report.protocol import MISSING


def estimate(row: Mapping[Any, Any]) -> str:
    """``84.8±0.9``, in percent; the second number is half the width of the interval."""
    values: Sequence[float] = [100 * float(row[k]) for k in ("value", "ci_low", "ci_high")]
    if math.isnan(values[0]):
        return MISSING
    value, low, high = values
    return f"{value:.1f}" if math.isnan(low) else f"{value:.1f}±{(high - low) / 2:.1f}"


def present_sizes(rows: pd.DataFrame, sizes: Mapping[str, str]) -> dict[str, str]:
    """Those sizes that are worth a column: replies are rarely cut, and earlier runs do not say."""
    return {
        name: words
        for name, words in sizes.items()
        if name in rows and (name != "n_cut" or rows[name].any())
    }


def why_missing(row: Mapping[Any, Any]) -> str:
    """Why there is no value, from the sizes of its row; empty where these do not tell."""
    asked, unparsed, failed = (int(row[k]) for k in ("n_asked", "n_unparsed", "n_failed"))
    if not asked:
        return "nothing was asked"
    if failed == asked:
        return "every request failed"
    if unparsed and unparsed + failed == asked:
        found = float(row.get("n_cut", 0))  # earlier runs do not say
        cut = 0 if math.isnan(found) else int(found)
        return "no answer could be read" + (f" ({cut:,} replies were cut)" if cut else "")
    if not row.get("n_pairs", 1) and (unparsed or failed):
        return "no pair has two answers that could be read"
    return ""


def metric_tables(
    rows: pd.DataFrame,
    head: str,
    names: Mapping[str, str],
    sizes: Mapping[str, str],
    metrics: Mapping[str, str],
    title: str,
    width: int,
) -> Iterator[RenderableType]:
    """One row per split, its sizes and its metrics; as many tables as the width demands.

    Args:
        rows: long table with ``split, metric, value, ci_low, ci_high`` and the sizes.
        head: of the column of splits.
        names: split → what it is called, in this order; one without rows is left out.
        sizes: column → what it is called. Those that stand beside the first metric are shown.
        metrics: metric → what it is called, in this order.
        title: of every table.
        width: of the terminal.
    """
    part = rows[rows["metric"].isin(metrics)]
    sizes = present_sizes(part, sizes)
    found = {(row["split"], row["metric"]): row for row in part.to_dict("records")}
    splits = [split for split in names if any(key[0] == split for key in found)]
    first = next(iter(metrics))
    columns = [Column((head,), [Text(names[split], "bold") for split in splits])]
    for name, words in sizes.items():
        columns.append(
            Column((words,), numbers([f"{int(found[split, first][name]):,}" for split in splits]))
        )
    for metric, words in metrics.items():
        columns.append(
            Column((words,), numbers([estimate(found[split, metric]) for split in splits]))
        )
    for piece in pack(columns, width):
        yield Text()
        yield build(piece, title)
    reasons: dict[str, list[str]] = {}
    for split in splits:
        row = found[split, first]
        if all(math.isnan(float(found[split, metric]["value"])) for metric in metrics):
            reasons.setdefault(why_missing(row), []).append(names[split])
    for reason, where in reasons.items():
        if reason:
            yield Text(f"{MISSING} of {', '.join(where)}: {reason}.", "yellow")
