"""What was found: tables of numbers, and the draws that these are held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pandas as pd

from ood_lab.common.arguments import Fields
from ood_lab.schema.arrays import Floats

#: Draws by what they are of, ``[B]`` each.
Draws = Mapping[str, Floats]


class BootstrapResult(Protocol):
    """A named tuple of numbers, and the draws behind them."""

    @property
    def drawn(self) -> Draws:
        """By what they are of."""

    def _asdict(self) -> Fields: ...


@dataclass
class Findings:
    """Collected one by one.

    Attributes:
        tables: by the name of their file.
        notes: below a table, a sentence each.
    """

    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)
    _draws: list[pd.DataFrame] = field(default_factory=list)

    def keep(self, table: str, draws: Draws, model: str = "", metric: str = "") -> None:
        """Keeps the draws of a statistic.

        Args:
            table: that has its numbers.
            draws: of the statistic.
            model: that it is of, if it is of one.
            metric: likewise.
        """
        place = {"table": table, "model": model, "metric": metric}
        for name, values in draws.items():
            self._draws.append(pd.DataFrame({**place, "draws": name, "value": values}))

    def keep_all(self, table: str, results: Mapping[str, Mapping[str, BootstrapResult]]) -> None:
        """Makes a table of statistics by model and metric, and keeps the draws."""
        rows = []
        for model, by_metric in results.items():
            for metric, result in by_metric.items():
                self.keep(table, result.drawn, model, metric)
                rows.append({"model": model, "metric": metric, **result._asdict()})
        self.tables[table] = pd.DataFrame(rows).drop(columns="drawn", errors="ignore")

    @property
    def draws(self) -> pd.DataFrame:
        """One row per draw: ``table, model, metric, draws`` (what they are of) and ``value``."""
        return pd.concat(self._draws, ignore_index=True)
