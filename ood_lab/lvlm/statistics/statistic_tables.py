"""What was found: tables of numbers, and the draws that these are held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pandas as pd

from ood_lab.schema.arrays import Floats

#: Draws by what they are of, ``[B]`` each.
Draws = Mapping[str, Floats]
#: Columns of :attr:`Findings.draws`.
_COLUMNS = ["table", "model", "metric", "draws", "value"]


class BootstrapResult(Protocol):
    """A named tuple of numbers, and the draws behind them."""

    @property
    def drawn(self) -> Draws:
        """By what they are of."""

    def _asdict(self) -> dict[str, Any]: ...


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

    def keep(
        self, table: str, results: BootstrapResult, model: str = "", metric: str = ""
    ) -> dict[str, Any]:
        """Keeps the draws of a statistic; returns its numbers.

        Args:
            table: that has the numbers.
            results: the statistic.
            model: that it is of, if it is of one.
            metric: likewise.
        """
        place = {"table": table, "model": model, "metric": metric}
        for name, values in results.drawn.items():
            self._draws.append(pd.DataFrame({"value": values}).assign(draws=name, **place))
        return {key: value for key, value in results._asdict().items() if key != "drawn"}

    def keep_all(self, table: str, results: Mapping[str, Mapping[str, BootstrapResult]]) -> None:
        """Makes a table of statistics by model and metric, and keeps the draws."""
        self.tables[table] = pd.DataFrame(
            [
                {"model": name, "metric": metric, **self.keep(table, value, name, metric)}
                for name, values in results.items()
                for metric, value in values.items()
            ]
        )

    @property
    def draws(self) -> pd.DataFrame:
        """One row per draw: ``table, model, metric, draws`` (what they are of) and ``value``."""
        if not self._draws:
            return pd.DataFrame(columns=_COLUMNS)
        return pd.concat(self._draws, ignore_index=True)[_COLUMNS]
