"""The results of ODE as tables for the terminal."""

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
CAPTIONS = {"chair": "CHAIR", "cover": "Cover", "hal": "Hal", "cog": "Cog"}
_OF_NO = {"accuracy": "Acc", "precision": "P", "recall": "R", "f1": "F1"}
ANSWERS = {
    "Existence": {f"existence_{key}": name for key, name in _OF_NO.items()},
    "Attributes": {f"attribute_{key}": name for key, name in _OF_NO.items()},
    "All yes/no questions": {f"all_{key}": name for key, name in _OF_NO.items()},
}
POPE = {
    "pope_precision": "P (yes)",
    "pope_recall": "R (yes)",
    "pope_f1": "F1 (yes)",
    "pope_yes_rate": "yes-rate",
}
#: What is compared between criteria, levels of shift, and models.
COMPARED = {
    **CAPTIONS,
    "existence_accuracy": "Existence: Acc",
    "attribute_accuracy": "Attributes: Acc",
    "all_accuracy": "All: Acc",
}
WAYS = {"wrong": "an unparsed answer counts as wrong", "drop": "unparsed answers are left out"}
SIZES = {
    "n_asked": "asked",
    "n_unparsed": "unparsed",
    "n_cut": "cut",
    "n_failed": "failed",
    "n_pairs": "images",
}


@dataclass(frozen=True)
class OdeTables:
    """A rich renderable: ``console.print`` it. Made by :func:`ode_tables`."""

    results: pd.DataFrame
    title: str
    first: str
    backends: str
    models: pd.DataFrame | None

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Captions, then each sort of yes/no questions."""
        yield Text(self.title, style="bold")
        whole = whole_criteria(self.results)
        yield from _table(whole, CAPTIONS, "Captions, %", options.max_width)
        yield Text(f"Lower is better but for Cover. {self.backends}", "dim")
        answers = whole[whole["unparsed"] == self.first]
        for title, metrics in (*ANSWERS.items(), ("Existence as POPE has it", POPE)):
            if answers["metric"].isin(metrics).any():
                yield from _table(answers, metrics, f"{title}, %", options.max_width)
        yield Text("Positive class: no (POPE: yes). 95% intervals from resampling images.", "dim")
        if self.models is not None and len(self.models):
            title, width = "Models on the same questions, points", options.max_width
            yield from difference_tables(self.models, {}, COMPARED, title, width)


def ode_tables(results: pd.DataFrame, folder: Path, manifest: Mapping[str, Any]) -> OdeTables:
    """Tables of the results of one model.

    Args:
        results: see :func:`ood_lab.lvlm.ode.scoring.results_of`.
        folder: of the run, with its ``models.csv``, if any.
        manifest: ``title``, ``unparsed`` (the way that is shown) and ``scoring``.
    """
    scoring = manifest["scoring"]
    backends = f"Nouns: {scoring['nouns']}; synonyms: {scoring['similarity']}."
    models = folder / "models.csv"
    return OdeTables(
        results,
        str(manifest["title"]),
        str(manifest["unparsed"]),
        backends,
        read_table(models) if models.is_file() else None,
    )


def whole_criteria(results: pd.DataFrame) -> pd.DataFrame:
    """The rows that are not of one level, cell or distance."""
    return results[results[[*LEVELS, "distance"]].isna().all(axis=1)]


def _table(
    rows: pd.DataFrame, metrics: Mapping[str, str], title: str, width: int
) -> Iterator[RenderableType]:
    part = rows[rows["metric"].isin(metrics)]
    names = {split: named(split) for split in part["split"].unique()}
    sizes = {
        name: words
        for name, words in SIZES.items()
        if name in ("n_asked", "n_pairs") or (name in part and part[name].any())
    }
    yield from metric_tables(part, "criterion", names, sizes, metrics, title, width)


def named(split: str) -> str:
    """``long_tail`` → ``long-tail``."""
    return split.replace("_", "-")
