"""The results of ORIC as tables for the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from ood_lab.axes import LEVELS
from ood_lab.io import read_table
from ood_lab.report.answers_table import metric_tables
from ood_lab.report.columns import Column, beside, build, numbers, pack

#: Metric, and what it is called in tables; in this order.
METRICS = {
    "macro_f1": "F1",
    "macro_precision": "P",
    "macro_recall": "R",
    "yes_rate": "yes-rate",
    "recall_yes": "R yes",
    "recall_no": "R no",
    "f1_yes": "F1 yes",
    "f1_no": "F1 no",
    "precision_yes": "P yes",
    "precision_no": "P no",
    "accuracy": "Acc",
}
#: Set of questions, and what it is called.
SETS = {
    "oric": "ORIC",
    "uniform": "uniform",
    "pos_only": "positives only",
    "neg_only": "negatives only",
    "pope_random": "POPE random",
    "pope_popular": "POPE popular",
    "pope_adversarial": "POPE adversarial",
}
SIZES = {"n_items": "items", "n_asked": "asked", "n_unparsed": "unmatched", "n_failed": "failed"}
_NOTE = (
    "Mean over the wordings of each question; F1, P, R: mean of yes and no. ± half of the 95% "
    "interval, from resampling images."
)


@dataclass(frozen=True)
class OricTables:
    """A rich renderable: ``console.print`` it. Made by :func:`oric_tables`."""

    results: pd.DataFrame
    differences: pd.DataFrame | None
    models: pd.DataFrame | None
    title: str

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Metrics of every set, then how other sets, and other models, differ."""
        yield Text(self.title, style="bold")
        whole = mean_rows(self.results)
        yield from metric_tables(
            whole, "questions", SETS, SIZES, METRICS, "Answers, %", options.max_width
        )
        yield Text(_NOTE, "dim")
        for table, title in (
            (self.differences, "ORIC minus other questions, points"),
            (self.models, "Models on the same questions, points"),
        ):
            if table is not None and len(table):
                for part in pack(_pairs(table), options.max_width):
                    yield Text()
                    yield build(part, title)
                yield Text("p: two-sided bootstrap test, Holm-corrected.", "dim")


def oric_tables(results: pd.DataFrame, folder: Path, manifest: Mapping[str, Any]) -> OricTables:
    """Tables of a run.

    Args:
        results: see :func:`ood_lab.lvlm.oric.scoring.results_of`.
        folder: of the run, with its ``differences.csv`` and ``models.csv``, if any.
        manifest: ``title`` is read.
    """
    tables = [_optional(folder / f"{name}.csv") for name in ("differences", "models")]
    return OricTables(results, tables[0], tables[1], str(manifest["title"]))


def mean_rows(results: pd.DataFrame) -> pd.DataFrame:
    """The rows of the mean over wordings that are not of one level or cell."""
    whole = results[list(LEVELS)].isna().all(axis=1)
    return results[whole & (results["prompt"] == "mean")]


def p_text(value: float) -> str:
    """A p-value for people."""
    if math.isnan(value):
        return "N/A"
    return "<.001" if value < 0.001 else f"{value:.3f}".removeprefix("0")


def _optional(file: Path) -> pd.DataFrame | None:
    return read_table(file) if file.is_file() else None


def _pairs(table: pd.DataFrame) -> list[Column]:
    """Differences of the macro F1 and both recalls."""
    pairs = list(dict.fromkeys(zip(table["a"], table["b"], strict=True)))
    found = {(row["a"], row["b"], row["metric"]): row for row in table.to_dict("records")}
    names = [f"{SETS.get(a, a)} - {SETS.get(b, b)}" for a, b in pairs]
    columns = [Column(("",), [Text(name, "bold") for name in names])]
    for metric in ("macro_f1", "recall_yes", "recall_no"):
        rows = [found[a, b, metric] for a, b in pairs]
        texts = [
            f"{100 * r['difference']:+.1f} [{100 * r['ci_low']:+.1f}, {100 * r['ci_high']:+.1f}]"
            for r in rows
        ]
        cells = beside(numbers(texts), numbers([p_text(r["p_holm"]) for r in rows]))
        columns.append(Column((f"{METRICS[metric]}     p",), cells))
    return columns
