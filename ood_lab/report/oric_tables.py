"""The results of ORIC as tables for the terminal."""

from __future__ import annotations

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
from ood_lab.report.differences import difference_tables

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
#: What is compared between sets, and between models.
_COMPARED = {key: METRICS[key] for key in ("macro_f1", "recall_yes", "recall_no")}
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
SIZES = {
    "n_items": "items",
    "n_asked": "asked",
    "n_unparsed": "unmatched",
    "n_cut": "cut",
    "n_failed": "failed",
}
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
                yield from difference_tables(table, SETS, _COMPARED, title, options.max_width)


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


def _optional(file: Path) -> pd.DataFrame | None:
    return read_table(file) if file.is_file() else None
