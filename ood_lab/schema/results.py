"""The results table of a run: one schema for every task, long form, one row per number."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.files import read_table, write_csv, write_table
from ood_lab.schema.image_columns import LEVELS

#: Key in a table → what it is called.
Names = Mapping[str, str]
#: Tables by name.
Tables = Mapping[str, pd.DataFrame]
#: A row of a table: column → value.
Row = Mapping[Any, Any]
#: Rows of a results table.
ResultRows = pd.DataFrame | Iterable[Row]
#: Tables with their names, one after another.
NamedTables = Iterator[tuple[str, pd.DataFrame]]
RESULTS = "results.parquet"
#: Dataset of the ID test images.
ID_TEST = "test"
#: Columns of every results table. ``n`` counts what was resampled, which ``unit`` names.
CORE = (
    "kind",
    "model",
    "metric",
    "value",
    "ci_low",
    "ci_high",
    "n",
    "unit",
    "seed",
    *LEVELS,
)

#: A key that only rows of a part of a set fill, in words: ``wording 2``, ``distance 3``.
PART = "part"


@dataclass(frozen=True)
class Kind:
    """What the rows of one kind of result have in addition to the core columns.

    Attributes:
        name: value of the column ``kind``.
        unit: what is resampled, in the singular, where a row names nothing else.
        keys: columns that tell rows apart, then further counts.
    """

    name: str
    unit: str
    keys: tuple[str, ...]

    def table(self, rows: ResultRows, *, model: str | None, seed: int) -> pd.DataFrame:
        """Rows as a table with the core columns, then the keys; what a row lacks is missing.

        ``model`` is None where no model is measured, but data.

        Raises:
            ValueError: a row has a column that is not declared.
        """
        table = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(map(dict, rows))
        columns = [*CORE, *self.keys]
        if unknown := [str(name) for name in table if name not in columns]:
            raise ValueError(f"results of kind '{self.name}' do not declare {', '.join(unknown)}")
        unit = table["unit"].fillna(self.unit) if "unit" in table else self.unit
        return table.assign(kind=self.name, model=model, seed=seed, unit=unit).reindex(
            columns=columns
        )


def estimate_row(
    metric: str, value: float, low: float = math.nan, high: float = math.nan, **keys: Any
) -> dict[str, Any]:
    """A number with its interval, as rows of results have it; NaN where there is none."""
    return {"metric": metric, "value": float(value), "ci_low": low, "ci_high": high, **keys}


#: Shares of right answers of a model, where no detector is scored: ``part`` names what was asked.
ACCURACY = Kind("accuracy", "image", (PART,))


def joined(tables: Iterable[pd.DataFrame | None]) -> pd.DataFrame:
    """Results as one table; those that are None or empty are skipped, if not all are."""
    present = [table for table in tables if table is not None]
    filled = [table for table in present if len(table)] or present[:1]
    together = pd.concat(filled, ignore_index=True)
    if together["kind"].nunique() > 1:  # rows of one kind lack counts of another
        counts = [str(name) for name in together if str(name).startswith("n_")]
        together = together.astype(dict.fromkeys(counts, "Int64"))
    return together


def write_results(results: pd.DataFrame, folder: Path) -> None:
    """Writes the results of a run as ``results.parquet`` and ``results.csv``.

    Args:
        results: of all kinds, see :func:`joined`.
        folder: of the run.
    """
    write_table(results, folder / RESULTS)
    write_csv(results, folder / "results.csv")


def read_results(folder: Path) -> pd.DataFrame:
    """The results of a finished run.

    Raises:
        UserError: the file is missing or damaged, or lacks a core column.
    """
    results = read_table(folder / RESULTS)
    if missing := [name for name in CORE if name not in results]:
        raise UserError(
            f"{folder / RESULTS} has no column {missing[0]}: repeat the command of that run with "
            "force=true; features that were extracted and answers that were paid for are read again"
        )
    return results


def keys_of(table: pd.DataFrame, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """The values of some columns, a tuple a row; None where one is missing."""
    values = table[[*columns]].astype(object)
    return list(values.where(values.notna(), None).itertuples(index=False, name=None))


def of_kind(results: pd.DataFrame, kind: str) -> pd.DataFrame:
    """The rows of one kind; only their columns have values."""
    return results[results["kind"] == kind]


def whole(results: pd.DataFrame) -> pd.DataFrame:
    """The rows of whole sets: those of a level or cell of shift, or of another part, are not."""
    columns = [name for name in (*LEVELS, PART) if name in results]
    return results[results[columns].isna().all(axis=1)]


def first_way(results: pd.DataFrame) -> pd.DataFrame:
    """Of results that treat unparsed answers in two ways, the rows of the first one.

    Rows that no unparsed answer can change stay.
    """
    if "unparsed" not in results:
        return results
    ways = results["unparsed"]
    return results[ways.isna() | ways.isin(ways.dropna().head(1))]


def why_missing(row: Row) -> str:
    """Why a row about answers has no value, from its counts; empty where these do not tell."""
    total, unparsed, cut, failed = (
        int(row[k]) for k in ("n_asked", "n_unparsed", "n_cut", "n_failed")
    )
    if not total:
        return "no question was sent"
    if failed == total:
        return "every request failed"
    if unparsed and unparsed + failed == total:
        return "no answer could be read" + (f" ({cut:,} replies were cut)" if cut else "")
    if not row["n"] and (unparsed or failed):
        return f"no {row['unit']} has answers that could all be read"
    return ""
