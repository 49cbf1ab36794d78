"""OODBench's statistics over several models, for the terminal and as a page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ood_lab.common.english import counted
from ood_lab.common.files import packaged_table
from ood_lab.lvlm.benchmarks.oodbench.page import SPLITS
from ood_lab.lvlm.pages.definitions import defined
from ood_lab.lvlm.statistics.statistic_tables import Findings
from ood_lab.report.rendering.blocks import Folded, PlannedFigure, Section, Text
from ood_lab.report.rendering.metric_definitions import MISSING, p_text, percent
from ood_lab.report.rendering.page import Page
from ood_lab.report.rendering.sentences import ALPHA, listing, noted, spread_of, values_of
from ood_lab.report.rendering.table import Cell, Head, Table
from ood_lab.schema.run_record import RunRecord

#: Draws behind the tables.
DRAWS = "draws.parquet"
SUGGESTIONS = "suggestions"
_SHOWN = packaged_table(__package__, "statistic_words.yaml")
#: Table, and what is above it; in this order.
TITLES: Mapping[str, str] = _SHOWN["titles"]
_SHARES = frozenset(_SHOWN["shares"])


def statistics_sentences(found: Findings, splits: pd.Series, ood: str) -> Iterator[str]:
    """How many pairs there are, what accuracy loses from ID to OOD, and who errs.

    Args:
        found: with the tables ``degradation``, ``errors`` and ``wrong_by``.
        splits: of every question pair that all models answered.
        ood: the one that ID is compared with.
    """
    rows, errors = found.tables["degradation"], found.tables["errors"]
    models, sizes, name = counted(len(errors), "model"), splits.value_counts(), SPLITS[ood]
    yield (
        f"{models} answered {counted(len(splits), 'question pair')}, {sizes['id']:,} of them of ID "
        f"and {sizes[ood]:,} of {name}."
    )
    rows = rows[rows["metric"] == "accuracy"]
    rows = rows.rename(columns={"model": "on", "low": "ci_low", "high": "ci_high"})
    lost = values_of(rows, True, " points", "for")
    lower = listing(list(rows.loc[rows["p"] < ALPHA, "on"]) or ["no model"])
    yield (
        f"Accuracy on ID minus that on {name} is {noted(lost)}; it is "
        f"significantly above zero for {lower} (a one-sided test of each)."
    )
    wrong = found.tables["wrong_by"]["at_least"]
    said = f"Of the {name} questions, {spread_of(errors['share'], 1)}% are answered wrongly"
    if len(errors) > 1:
        said += (
            f", depending on the model; {percent(wrong.iloc[1])}% by at least one of them, "
            f"{percent(wrong.iloc[-1])}% by all"
        )
    yield f"{said}."


def statistics_tables(found: Findings) -> list[Table | Folded]:
    """The tables, by the name of their file, as people read them; see :data:`TITLES`."""
    shown = [name for name in TITLES if name in found.tables]
    tables = {name: _table(name, found.tables[name], found.notes.get(name, ())) for name in shown}
    return [
        # A row for every category is too long for a terminal.
        Folded(table.caption, [table], page_only=True) if name == SUGGESTIONS else table
        for name, table in tables.items()
    ]


def statistics_page(
    blocks: Sequence[Text | Table | Folded],
    figures: Sequence[PlannedFigure | Folded],
    record: RunRecord,
) -> Page:
    """The page, with ``title`` and ``sentence`` of the manifest."""
    return Page(
        title=record.title,
        sentence=record.sentence,
        blocks=[Section("Results", blocks), Section("Figures", figures)],
        definitions=defined("oodbench_statistics"),
        record=record,
    )


def _table(name: str, table: pd.DataFrame, notes: Sequence[str]) -> Table:
    cells = [
        [Cell(_text(name, str(key), value, row), _sort(value)) for key, value in row.items()]
        for row in table.to_dict("records")
    ]
    # The texts before the first number say what a row is: a pair of models, a model and a metric.
    texts = [all(isinstance(value, str) for value in table[column]) for column in table]
    names = max(1, [*texts, False].index(False))
    return Table(
        TITLES[name], [Head(_words(str(head))) for head in table], cells, names=names, notes=notes
    )


def _text(table: str, key: str, value: Any, row: Mapping[Any, Any]) -> str:
    """What people read in the column ``key`` of a row."""
    if key in ("quantity", "metric"):
        return _words(str(value))
    what = str(row["quantity"]) if key == "value" and "quantity" in row else key
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, str):
        return SPLITS.get(value, value) if what == "samples" else value
    if isinstance(value, tuple):
        return " and ".join(f"{size:,}" for size in value)
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    number = float(value)
    if math.isnan(number):
        return MISSING
    if what in ("p", "p_mcnemar", "p_bootstrap") or what.endswith(("_p", "_holm")):
        return p_text(number)
    if what in ("pairs", "shared"):
        return f"{number:,.0f}"
    if what == "variance":
        return f"{1e4 * number:.1f}"
    if what in _SHARES and table != "mmd":
        return f"{100 * number:.1f}"
    return f"{number:.2e}" if 0 < abs(number) < 1e-3 else f"{number:.3f}"


def _sort(value: Any) -> float | str:
    """What a cell is sorted by; empty where its value is missing."""
    if isinstance(value, (str, tuple)):
        return value if isinstance(value, str) else float(value[0])
    return "" if math.isnan(value) else float(value)


def _words(name: str) -> str:
    return str(_SHOWN["words"].get(name, name.replace("_", " ")))
