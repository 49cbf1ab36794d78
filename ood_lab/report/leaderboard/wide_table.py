"""The leaderboard as one table, from which every format is written."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import pandas as pd

from ood_lab.metrics import metric_of
from ood_lab.report.leaderboard.long_table import MEAN, WORDS, Leaderboard
from ood_lab.report.leaderboard.run_names import name_columns, short_names
from ood_lab.report.leaderboard.significance import RULE
from ood_lab.report.rendering.metric_definitions import MISSING, fpr95_sentence, percent
from ood_lab.report.rendering.prose import sentences
from ood_lab.report.rendering.table import (
    Cell,
    Column,
    Group,
    Head,
    Table,
    mean_cell,
    metric_head,
    names_column,
    table_of,
)
from ood_lab.schema.results import keys_of

_KEY = ["run", "detector"]


@lru_cache(maxsize=1)  # the terminal and the files show the same one
def wide_table(board: Leaderboard) -> Table:
    """One row per detector of a run, best mean AUROC first; then the sets, ordered by shift."""
    rows, view = board.rows, board.runs[0].view
    shown, several = _ordered(board), bool(rows["n_seeds"].max() > 1)
    keys, places = keys_of(shown, _KEY), keys_of(rows, [*_KEY, "metric", "dataset"])
    numbers = dict(zip(places, rows.to_dict("records"), strict=True))
    sizes = rows.groupby("dataset")["n_ood"].max()

    def column(head: Head, metric: str, ood: str | None, **options: Any) -> Column:
        of_model = metric == "id_accuracy"
        of_rows = [(run, None if of_model else detector, metric, ood) for run, detector in keys]
        return Column(head, [mean_cell(numbers.get(key, {}), **options) for key in of_rows])

    def of_set(ood: str) -> list[Column]:
        note = f"n {int(sizes[ood]):,}" if ood in board.sets else ""
        group = Group(f"{ood}{board.mark(ood)}", note)
        return [column(metric_head(metric, group), metric, ood) for metric in view.headlines]

    names = [names_column(key, shown[key]) for key in name_columns(shown, "detector")]
    if several:
        names.append(Column(Head("seeds"), [Cell(str(n), int(n)) for n in shown["n_seeds"]]))
    columns = of_set(board.summary)
    for group in view.shown_means:
        columns += of_set(f"{MEAN} {group}")
    for kind, words in board.dads.items():
        dad = Head("DAD", note=words)
        columns.append(column(dad, kind, None, show="{:.1f}".format, count=True))
    columns.append(column(Head("ID acc."), "id_accuracy", None))
    for ood in board.sets if board.summary == MEAN else ():
        columns += of_set(ood)
    of_sets = rows[rows["dataset"].isin(board.sets)]
    medians = of_sets.groupby([*_KEY, "metric"])["sampling_half_width"].median()
    for metric in view.headlines:
        halves = [medians.get((*key, metric), math.nan) for key in keys]
        cells = [Cell(percent(half), "" if math.isnan(half) else half) for half in halves]
        sampling = Group("95% sampling", "median ±")
        title = f"{metric_of(metric).title} ±"
        columns.append(Column(Head(title, "ascending", group=sampling), cells))
    # A column without any value says nothing.
    columns = [c for c in columns if any(cell.text != MISSING for cell in c.cells)]
    n_id = f"n = {int(rows['n_id'].max()):,}"
    caption = f"In %, ID test{board.mark('test')} {n_id}. {fpr95_sentence(board.fpr95_positive)}."
    of_headlines = rows.loc[rows["metric"].isin(view.headlines), "sampling_half_width"]
    notes = sentences(WORDS, "wide", board, RULE, several, of_headlines.notna().any())
    notes += view.interval_notes
    return table_of(caption, [*names, *columns], names=len(names), notes=notes)


def row_names(board: Leaderboard) -> dict[tuple[str, str], str]:
    """Run and detector of every row → what tells the row apart."""
    rows = _ordered(board)
    names = rows[name_columns(rows, "detector")].to_numpy(str)
    texts = [" ".join(filter(None, of_row)) for of_row in names]
    return dict(zip(keys_of(rows, _KEY), texts, strict=True))


def _ordered(board: Leaderboard) -> pd.DataFrame:
    """``model, training, detector, settings, run, seeds, n_seeds``, a row of the table each."""
    rows = board.rows
    named = rows[rows["detector"].notna()].drop_duplicates(_KEY)
    auroc = rows[(rows["metric"] == "auroc") & (rows["dataset"] == board.summary)]
    named = named.merge(auroc[[*_KEY, "value"]], on=_KEY, how="left", suffixes=("_", ""))
    named = named.sort_values("value", ascending=False, kind="stable")
    return short_names(named, board.runs)
