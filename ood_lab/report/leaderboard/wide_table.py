"""The leaderboard as one table, from which every format is written."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import pandas as pd

from ood_lab.report.leaderboard.long_table import MEAN, WORDS, Leaderboard, mean_cell
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
    metric_head,
    names_column,
    table_of,
)

_KEY = ["run", "detector"]


@lru_cache(maxsize=1)  # the terminal and the files show the same one
def wide_table(board: Leaderboard) -> Table:
    """One row per detector of a run, best mean AUROC first; then the sets, ordered by shift."""
    return _Layout(board).table()


def row_names(board: Leaderboard) -> dict[tuple[str, str], str]:
    """Run and detector of every row → what tells the row apart."""
    layout = _Layout(board)
    columns = (column.cells for column in layout.names())
    texts = [" ".join(cell.text for cell in row if cell.text) for row in zip(*columns, strict=True)]
    return dict(zip(layout.keys, texts, strict=True))


class _Layout:
    """Look-ups by run, detector, metric and set, and the columns made of them."""

    def __init__(self, board: Leaderboard) -> None:
        self.board = board
        rows = board.rows
        keys = rows[[*_KEY, "metric", "dataset"]].astype(object)
        places = keys.where(keys.notna(), None).itertuples(index=False, name=None)
        self.cells = dict(zip(places, rows.to_dict("records"), strict=True))
        self.rows = self._ordered(rows)
        self.keys = list(self.rows[_KEY].itertuples(index=False, name=None))
        self.shown = {m: metric_head(m) for m in board.runs[0].view.headlines}
        self.seeds = int(rows["n_seeds"].max())

    def _ordered(self, rows: pd.DataFrame) -> pd.DataFrame:
        """``model, training, detector, settings, run, seeds, n_seeds``, a row of the table each."""
        named = rows[rows["detector"].notna()].drop_duplicates(_KEY)
        auroc = rows[(rows["metric"] == "auroc") & (rows["dataset"] == self.board.summary)]
        named = named.merge(auroc[[*_KEY, "value"]], on=_KEY, how="left", suffixes=("_", ""))
        named = named.sort_values("value", ascending=False, kind="stable")
        return short_names(named, self.board.runs)

    def table(self) -> Table:
        names = self.names()
        if self.seeds > 1:
            counts = [Cell(str(n), int(n)) for n in self.rows["n_seeds"]]
            names.append(Column(Head("seeds"), counts))
        columns: list[Column] = []

        def add_set(ood: str, note: str) -> None:
            group = Group(f"{ood}{self.board.mark(ood)}", note)
            columns.extend(Column(h, self._column(m, ood), group) for m, h in self.shown.items())

        first = self.board.summary
        add_set(first, "" if first == MEAN else f"n {self._n_ood(first):,}")
        for group in self.board.runs[0].view.shown_means:
            add_set(f"{MEAN} {group}", "")
        for kind, words in self.board.dads.items():
            dads = [mean_cell(row, "{:.1f}".format, count=True) for row in self._rows(kind, None)]
            columns.append(Column(Head("DAD", note=words), dads, Group()))
        columns.append(Column(Head("ID acc."), self._column("id_accuracy", None), Group()))
        for ood in self.board.sets if first == MEAN else ():
            add_set(ood, f"n {self._n_ood(ood):,}")
        sampling = Group("95% sampling", "median ±")
        columns += [
            Column(Head(f"{head.text} ±", "ascending"), self._halves(metric), sampling)
            for metric, head in self.shown.items()
        ]
        # A column without any value says nothing.
        columns = [c for c in columns if any(cell.text != MISSING for cell in c.cells)]
        n_id = int(self.board.rows["n_id"].max())
        tested = f"ID test{self.board.mark('test')} n = {n_id:,}"
        caption = f"In %, {tested}. {fpr95_sentence(self.board.fpr95_positive)}."
        options = {"names": len(names), "notes": self._notes()}
        return table_of(caption, [*names, *columns], **options)

    def names(self) -> list[Column]:
        """As many naming columns as it takes to tell the rows apart."""
        return [names_column(key, self.rows[key]) for key in name_columns(self.rows, "detector")]

    def _rows(self, metric: str, ood: str | None) -> list[dict[Any, Any]]:
        """The number of every row of the table; empty where it is missing."""
        of_model = metric == "id_accuracy"
        keys = [(run, None if of_model else name) for run, name in self.keys]
        return [self.cells.get((*key, metric, ood), {}) for key in keys]

    def _column(self, metric: str, ood: str | None) -> list[Cell]:
        return [mean_cell(row) for row in self._rows(metric, ood)]

    def _halves(self, metric: str) -> list[Cell]:
        """Median over the sets of the ± of the sampling interval."""
        rows = self.board.rows
        rows = rows[(rows["metric"] == metric) & rows["dataset"].isin(self.board.sets)]
        medians = rows.groupby(_KEY)["sampling_half_width"].median().to_dict()
        halves = [medians.get(key, math.nan) for key in self.keys]
        return [Cell(percent(half), "" if math.isnan(half) else half) for half in halves]

    def _n_ood(self, ood: str) -> int:
        rows = self.board.rows
        return int(rows.loc[rows["dataset"] == ood, "n_ood"].max())

    def _notes(self) -> list[str]:
        rows = self.board.rows
        halves = rows.loc[rows["metric"].isin(list(self.shown)), "sampling_half_width"]
        sampled = halves.notna().any()
        notes = sentences(WORDS, "wide", self.board, RULE, self.seeds > 1, sampled)
        return [*notes, *self.board.runs[0].view.interval_notes]
