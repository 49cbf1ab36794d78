"""The results of OODBench as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.text import Text

from ood_lab.axes import LEVELS
from ood_lab.report.answers_table import estimate, metric_tables
from ood_lab.report.columns import Column, build, numbers, pack

#: Metric, and what it is called in tables; in this order.
YES_NO = {
    "accuracy": "Acc",
    "precision": "P",
    "recall": "R",
    "f1": "F1",
    "mcc": "MCC",
    "yes_rate": "yes-rate",
}
BAP = {"bap_existence": "existence", "bap_counting": "counting", "bap_logic": "logic"}
SPLITS = {"id": "ID", "ood_s": "OOD-S", "ood_h": "OOD-H", "hard": "hard", "pooled": "pooled"}
WAYS = {
    "drop_pair": "an unparsed answer removes its pair",
    "wrong": "an unparsed answer counts as wrong",
}
SIZES = {
    "n_asked": "asked",
    "n_unparsed": "unparsed",
    "n_cut": "cut",
    "n_failed": "failed",
    "n_pairs": "pairs",
}

#: A BAP sample is three questions about one image, which are no pair.
BAP_SIZES = {**SIZES, "n_pairs": "samples"}


@dataclass(frozen=True)
class OODBenchTables:
    """A rich renderable: ``console.print`` it. Made by :func:`oodbench_tables`."""

    results: pd.DataFrame
    title: str
    first: str

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Yes/no questions both ways (once where nothing is unparsed), then BAP."""
        yield Text(self.title, style="bold")
        whole = whole_splits(self.results)
        unparsed = bool(whole.loc[whole["metric"] == "accuracy", "n_unparsed"].any())
        ways = sorted(WAYS, key=lambda way: way != self.first)
        for way in ways if unparsed else ways[:1]:
            rows = whole[whole["unparsed"] == way]
            words = f"; {WAYS[way]}" if unparsed else ""
            title = f"Yes/no questions, %{words}"
            yield from metric_tables(rows, "split", SPLITS, SIZES, YES_NO, title, options.max_width)
        yield Text(
            "Positive class: yes. ± half of the 95% interval, from resampling question pairs.",
            "dim",
        )
        if whole["metric"].isin(BAP).any():
            title = "Basic-to-advanced progression, % right"
            width = options.max_width
            yield from metric_tables(whole, "split", SPLITS, BAP_SIZES, BAP, title, width)
            yield Text("logic: the count and the comparison are right.", "dim")


def oodbench_tables(results: pd.DataFrame, manifest: Mapping[str, Any]) -> OODBenchTables:
    """Tables of the results of one model.

    Args:
        results: see :func:`ood_lab.lvlm.oodbench.scoring.results_of`.
        manifest: ``title``, and ``unparsed``, the way that comes first.
    """
    return OODBenchTables(results, str(manifest["title"]), str(manifest["unparsed"]))


def whole_splits(results: pd.DataFrame) -> pd.DataFrame:
    """The rows that are not of one level or cell."""
    return results[results[list(LEVELS)].isna().all(axis=1)]


def ablation_tables(table: pd.DataFrame, width: int) -> Group:
    """Pairs and metrics of every setting and split; the settings are numbered, and named below.

    Args:
        table: ``setting, split, initial_pairs, n_pairs, metric, value, ci_low, ci_high``.
        width: of the terminal.
    """
    settings = list(dict.fromkeys(table["setting"]))
    found = {(row["setting"], row["split"], row["metric"]): row for row in table.to_dict("records")}
    places = [(setting, split) for setting, split, metric in found if metric == "accuracy"]
    first = [found[setting, split, "accuracy"] for setting, split in places]
    initial = [row["initial_pairs"] for row in first]
    columns = [
        Column(("setting",), [Text(f"{settings.index(s) + 1} {SPLITS[t]}") for s, t in places]),
        Column(("pairs", "uncut"), numbers(["" if pd.isna(n) else f"{int(n):,}" for n in initial])),
        Column(("pairs",), numbers([f"{int(row['n_pairs']):,}" for row in first])),
    ]
    for metric, words in YES_NO.items():
        texts = [estimate(found[setting, split, metric]) for setting, split in places]
        columns.append(Column((words,), numbers(texts)))
    named = "\n".join(f"{number} {name}" for number, name in enumerate(settings, 1))
    return Group(*(build(part, "Ablation, %") for part in pack(columns, width)), Text(named, "dim"))
