"""The leaderboard as one table, from which every format is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from ood_lab.report.leaderboard.long_table import MEAN, Leaderboard
from ood_lab.report.leaderboard.run_names import short_names
from ood_lab.report.leaderboard.significance import RULE
from ood_lab.report.rendering.metric_definitions import MISSING, fpr95_sentence, percent
from ood_lab.report.rendering.table import (
    Cell,
    Column,
    Group,
    Head,
    Table,
    metric_head,
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
    columns = [cells for head, cells in layout.names() if head.text != "seeds"]
    texts = [" ".join(cell.text for cell in row if cell.text) for row in zip(*columns, strict=True)]
    keys = layout.rows[_KEY].itertuples(index=False, name=None)
    return dict(zip(keys, texts, strict=True))


class _Layout:
    """Look-ups by run, detector, metric and set, and the columns made of them."""

    def __init__(self, board: Leaderboard) -> None:
        self.board = board
        rows = board.rows
        records = rows.astype(object).where(rows.notna(), None).to_dict("records")
        self.cells = {(r["run"], r["detector"], r["metric"], r["dataset"]): r for r in records}
        self.summary = MEAN if len(board.sets) > 1 else board.sets[0]
        self.rows = self._ordered(rows)
        self.shown = {m: metric_head(m) for m in board.runs[0].view.headlines}
        self.seeds = int(rows["n_seeds"].max())

    def _ordered(self, rows: pd.DataFrame) -> pd.DataFrame:
        """``model, training, detector, settings, run, seeds, n_seeds``, a row of the table each."""
        named = rows[rows["detector"].notna()].drop_duplicates(_KEY)
        auroc = rows[(rows["metric"] == "auroc") & (rows["dataset"] == self.summary)]
        named = named.merge(auroc[[*_KEY, "value"]], on=_KEY, how="left", suffixes=("_", ""))
        named = named.sort_values("value", ascending=False, kind="stable")
        return short_names(named, self.board.runs)

    def table(self) -> Table:
        names = [Column(head, cells) for head, cells in self.names()]
        columns: list[Column] = []

        def add_set(ood: str, note: str) -> None:
            group = Group(f"{ood}{self.board.mark(ood)}", note)
            columns.extend(Column(h, self._column(m, ood), group) for m, h in self.shown.items())

        first, *others = dict.fromkeys([self.summary, *self.board.sets])
        add_set(first, "" if first == MEAN else f"n {self._n_ood(first):,}")
        for group in self.board.runs[0].view.shown_means:
            add_set(f"{MEAN} {group}", "")
        for kind, words in self.board.dads.items():
            dads = self._column(kind, None, "{:.1f}".format)
            columns.append(Column(Head("DAD", note=words), dads, Group()))
        columns.append(Column(Head("ID acc."), self._column("id_accuracy", None), Group()))
        for ood in others:
            add_set(ood, f"n {self._n_ood(ood):,}")
        sampling = Group("95% sampling", "median ±")
        columns += [
            Column(Head(f"{head.text} ±", "ascending"), self._halves(metric), sampling)
            for metric, head in self.shown.items()
        ]
        # A column without any value says nothing.
        known = [c for c in columns if any(cell.text != MISSING for cell in c.cells)]
        n_id = int(self.board.rows["n_id"].max())
        tested = f"ID test{self.board.mark('test')} n = {n_id:,}"
        caption = f"In %, {tested}. {fpr95_sentence(self.board.fpr95_positive)}."
        options = {"names": len(names), "notes": self._notes(), "each": "{}, %"}
        return table_of(caption, [*names, *known], **options)

    def names(self) -> list[tuple[Head, list[Cell]]]:
        """As many naming columns as it takes to tell the rows apart."""

        def column(key: str) -> tuple[Head, list[Cell]]:
            return Head(key, "ascending"), [Cell(t, t) for t in self.rows[key].astype(str)]

        keys = ["detector"]
        keys += ["model"] if self.rows["model"].nunique() > 1 else []
        keys += [key for key in ("training", "settings") if self.rows[key].any()]
        keys += ["run"] if self.rows.duplicated(keys).any() else []
        shown = [column(key) for key in keys]
        if self.seeds > 1:
            counts = [Cell(str(n), int(n)) for n in self.rows["n_seeds"]]
            shown.append((Head("seeds"), counts))
        return shown

    def _column(
        self, metric: str, ood: str | None, show: Callable[[float], str] = percent
    ) -> list[Cell]:
        of_model = metric == "id_accuracy"
        keys = [(run, None if of_model else name) for run, name in self.rows[_KEY].to_numpy()]
        return [self._cell(self.cells.get((*key, metric, ood), {}), show) for key in keys]

    def _cell(self, row: dict[Any, Any], show: Callable[[float], str]) -> Cell:
        if row.get("value") is None:
            return Cell(MISSING)
        value, std, half = (row[k] for k in ("value", "seed_std", "sampling_half_width"))
        spread = "" if std is None else f" ± {show(std)}"
        interval = "" if half is None else f"±{show(half)}"
        whole = std is None and row["metric"] in self.board.dads  # a count, no mean over seeds
        text = (f"{value:.0f}" if whole else show(value)) + spread
        return Cell(text, value, interval, best=bool(row["best"]))

    def _halves(self, metric: str) -> list[Cell]:
        """Median over the sets of the ± of the sampling interval."""
        found = []
        for run, detector in self.rows[_KEY].to_numpy():
            cells = [self.cells.get((run, detector, metric, s), {}) for s in self.board.sets]
            halves = [h for c in cells if (h := c.get("sampling_half_width")) is not None]
            half = float(np.median(halves)) if halves else math.nan
            found.append(Cell(percent(half), half if halves else ""))
        return found

    def _n_ood(self, ood: str) -> int:
        rows = self.board.rows
        return int(rows.loc[rows["dataset"] == ood, "n_ood"].max())

    def _notes(self) -> tuple[str, ...]:
        notes = ["Bold or *: best of its column, or not significantly worse. " + RULE]
        if self.seeds > 1:
            notes.append("a ± b: mean and standard deviation over the seeds of a configuration.")
        halves = self.board.rows.loc[
            self.board.rows["metric"].isin(list(self.shown)), "sampling_half_width"
        ]
        if halves.notna().any():
            notes.append(
                "95% sampling: ± of the bootstrap interval over images (mean over seeds); "
                "it is not a spread over seeds."
            )
        if self.board.shift_order:
            order = self.board.shift_words
            notes.append(f"DAD: pairs of sets whose larger shift has the lower FPR95; {order}.")
        if self.summary == MEAN:
            notes.append(f"mean: over all {len(self.board.sets)} sets.")
        notes += self.board.runs[0].view.interval_notes
        return tuple(notes)
