"""The verdict over models and seeds: means, standard deviations and counts of verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from ood_lab.report.blocks import Block, Folded, Text
from ood_lab.report.leaderboard import MEAN, Leaderboard, aggregate
from ood_lab.report.leaderboard_best import mark_best
from ood_lab.report.leaderboard_names import labels, short_names
from ood_lab.report.leaderboard_runs import FinishedRun
from ood_lab.report.protocol import DAGGER, fpr95_sentence, percent
from ood_lab.report.table import Cell, Head, Table, name_cell, number_cell
from ood_lab.report.verdict import WEAK, some
from ood_lab.words import counted, listed

#: Rows on a terminal, its width, and the fewest letters of a name there.
_ROWS, _WIDTH, _LETTERS = 10, 80, 16
_SHIFT = ["dataset", "encoder", "axis", "metric"]


@dataclass(frozen=True, eq=False)
class BoardVerdict:
    """What the runs of a leaderboard found, by configuration and over all of them.

    It reads their rows of the kinds ``verdict`` and ``shift``; a configuration is all that differs
    between runs but the seed.
    """

    board: Leaderboard

    @cached_property
    def runs(self) -> list[FinishedRun]:
        """Those that have a verdict on detectors."""
        return [run for run in self.board.runs if run.verdict.named]

    @cached_property
    def rows(self) -> pd.DataFrame:
        """One row per configuration, the highest mean AUROC first; empty without a verdict.

        ``n_seeds``; ``detector``, which most seeds recommend (none: the highest mean AUROC);
        ``recommended, in_best_set, detects``: by how many seeds; ``auroc, fpr95`` of the detector:
        mean over seeds, ``*_std`` their standard deviation (n - 1) and ``*_half_width``, the median
        half-width of the simultaneous 95% sampling intervals.
        """
        if not self.runs:
            return pd.DataFrame()
        rows = pd.DataFrame(_of_seeds(self._means[0], of) for of in self._seeds.values())
        rows = short_names(rows, self.runs)
        rows["configuration"] = labels(rows)
        return rows.sort_values("auroc", ascending=False, kind="stable", ignore_index=True)

    @property
    def sentences(self) -> list[str]:
        """The verdict in words."""
        return [*self._without(), *(self._found() if self.runs else ())]

    def blocks(self, page: bool = False) -> list[Block]:
        """What a terminal ends with, and what a page begins with."""
        shown: list[Block] = []
        if self.runs:
            table = self.table()
            shown.append(table if page else _narrow(table))
        if page and len(self.shift):
            shown.append(Folded("Shift of the datasets", [self._shift_table()], page_only=True))
        return [*shown, *(Text(sentence, "answer") for sentence in self.sentences)]

    def table(self) -> Table:
        """One row per configuration."""
        heads = [Head("configuration", "ascending"), Head("detector", "ascending")]
        heads += [Head("recom-", note="mended"), Head("best", note="set"), Head("detects")]
        heads += [Head("AUROC %"), Head("FPR95 %", "ascending")]
        cells = [
            [
                name_cell(row["configuration"]),
                name_cell(row["detector"]),
                *(
                    Cell(f"{row[key]}/{row['n_seeds']}", row[key] / row["n_seeds"])
                    for key in ("recommended", "in_best_set", "detects")
                ),
                *(_mean_cell(row, metric) for metric in ("auroc", "fpr95")),
            ]
            for row in self.rows.to_dict("records")
        ]
        halves = [f"{m} ±{percent(self.rows[k].median())}" for m, k in _HALVES.items()]
        notes = [
            "k/n: k of n seeds recommend the detector, have it in the set of the best, or have "
            "any detector that detects.",
            f"Mean over {self._counted()}; a ± b: mean and standard deviation over seeds.",
            f"95% sampling intervals: {', '.join(halves)} points (median half-width).",
            f"{fpr95_sentence(self.board.fpr95_positive)}.",
        ]
        return Table("Verdict by configuration", heads, cells, names=2, notes=notes)

    @cached_property
    def shift(self) -> pd.DataFrame:
        """Mean, standard deviation and number of runs of each dataset's shift."""
        parts = [r.verdict.shift for r in self.runs if len(r.verdict.shift)]
        if not parts:
            return pd.DataFrame()
        found = pd.concat(parts).groupby(_SHIFT, sort=False)["value"]
        return found.agg(["mean", "std", "count"]).reset_index()

    def _shift_table(self) -> Table:
        heads = [Head(name, "ascending") for name in _SHIFT]
        heads += [Head("mean", "ascending"), Head("std"), Head("runs")]
        rows = [
            [
                *(name_cell(row[key]) for key in _SHIFT),
                *(number_cell(row[key], show="{:.2f}".format) for key in ("mean", "std")),
                Cell(str(row["count"]), row["count"]),
            ]
            for row in self.shift.to_dict("records")
        ]
        return Table("Shift by dataset, mean over runs", heads, rows, names=len(_SHIFT))

    # The rows

    @cached_property
    def _seeds(self) -> dict[str, list[FinishedRun]]:
        found: dict[str, list[FinishedRun]] = {}
        for run in self.runs:
            found.setdefault(run.sweep, []).append(run)
        return found

    @cached_property
    def _means(self) -> tuple[pd.DataFrame, dict[tuple[Any, ...], bool]]:
        """The means of all detectors in all runs, and which are in the set of the best of one."""
        names = self.board.rows.drop_duplicates("run").set_index("run")["training"]
        single: list[dict[str, Any]] = []
        best: dict[tuple[Any, ...], bool] = {}
        for run in self.runs:
            rows = run.verdict.rows
            common = {"run": run.sweep, "training": names[run.sweep], "seed": run.seed, "ood": MEAN}
            for row in rows[rows["metric"].isin(["mean_auroc", "mean_fpr95"])].to_dict("records"):
                kept = {key: row[key] for key in ("model", "detector", "value", "n_id", "n_ood")}
                more = {
                    "metric": row["metric"].removeprefix(f"{MEAN}_"),
                    "settings": run.settings(row["detector"]),
                    "sampling_half_width": (row["ci_high"] - row["ci_low"]) / 2,
                    "low": row["ci_low"],
                }
                single.append({**kept, **common, **more})
            if len(self._seeds[run.sweep]) == 1:
                within = run.verdict.best if run.verdict.detects else ()
                of_set = rows.loc[rows["metric"] == "best_set", "detector"]
                best |= {(run.sweep, "auroc", MEAN, name): name in within for name in of_set}
        return pd.DataFrame(single), best

    # The words

    def _without(self) -> Iterator[str]:
        if left := len(self.board.runs) - len(self.runs):
            runs = "The run has" if left == len(self.board.runs) == 1 else f"{left} runs have"
            runs = "1 run has" if runs.startswith("1 ") else runs
            yield f"{runs} no verdict, from an earlier version: repeat with force=true."

    def _found(self) -> Iterator[str]:
        if not self.rows["detects"].any():
            yield "No detector detects these datasets in any run: no mean AUROC is above chance."
            return
        if len(self.rows) == 1:
            yield from self._recommended()
        elif len({tuple(sorted(run.verdict.left)) for run in self.runs}) > 1:
            yield "The runs leave other datasets out of their means, so these do not compare."
        else:
            yield from self._first()
        lost = self.rows.loc[self.rows["detects"] == 0, "configuration"]
        if len(lost):
            yield f"No detector detects these datasets in any seed of {some(list(lost))}."

    def _recommended(self) -> Iterator[str]:
        row, n = self.rows.iloc[0], int(self.rows.iloc[0]["n_seeds"])
        found = Counter(r.verdict.recommended for r in self.runs if r.verdict.recommended)
        names = [f"{name} by {k} of {n} seeds" for name, k in found.most_common()]
        yield f"Recommended detector: {listed(names)}."
        yield (
            f"{row['detector']} is in the set of the best in {row['in_best_set']} of {n} seeds: "
            f"AUROC {_spread(row, 'auroc')}, FPR95 {_spread(row, 'fpr95')}."
        )
        yield from _weak(row)

    def _first(self) -> Iterator[str]:
        """The highest mean AUROC of all models, and what is not significantly worse."""
        single, best = self._means
        rows = aggregate(single[single["metric"] == "auroc"])
        lost = {run.sweep for run in self.runs if run.at_chance}
        rows = short_names(rows, self.runs)[mark_best(rows, best, lost)]
        if rows.empty:
            yield "No mean AUROC over seeds is significantly above 50%."
            return
        rows = rows.sort_values("value", ascending=False, kind="stable")
        known = self.rows.set_index("run")["configuration"]
        names = [f"{row['detector']} ({known[row['run']]})" for row in rows.to_dict("records")]
        first = rows.iloc[0]
        spread = f"{percent(first['value'])}%"
        if first["n_seeds"] > 1:
            spread += f" ± {percent(first['seed_std'])} over {counted(first['n_seeds'], 'seed')}"
        yield f"Highest mean AUROC: {names[0]}, {spread}."
        if len(names) > 1:
            yield f"Not significantly worse: {some(names[1:])}."
        else:
            yield "All other detectors and configurations are significantly worse."
        of_fpr95 = single[(single["metric"] == "fpr95") & (single["run"] == first["run"])]
        of_fpr95 = of_fpr95.loc[of_fpr95["detector"] == first["detector"], "value"]
        yield from _weak({"detector": names[0], "fpr95": of_fpr95.mean()})

    def _counted(self) -> str:
        """The datasets that count, and those that do not, with the reason."""
        left = {name: why for run in self.runs for name, why in run.verdict.left.items()}
        n = counted(len(self.board.sets) - len(left), "dataset")
        words = {"flagged": DAGGER, "too_few": "too few images"}
        names = [f"{name} ({words[why]})" for name, why in left.items()]
        return f"{n}, without {some(names)}" if names else n


_HALVES = {"AUROC": "auroc_half_width", "FPR95": "fpr95_half_width"}


def _of_seeds(means: pd.DataFrame, runs: Sequence[FinishedRun]) -> dict[str, Any]:
    """The row of one configuration, see :attr:`BoardVerdict.rows`."""
    verdicts = [run.verdict for run in runs]
    means = means[means["run"] == runs[0].sweep]
    aurocs = means[means["metric"] == "auroc"].groupby("detector")["value"].mean()
    recommended = Counter(v.recommended for v in verdicts if v.recommended)
    best = Counter(name for verdict in verdicts for name in verdict.best)
    named = max(
        aurocs.index, key=lambda d: (recommended[d], bool(recommended) * best[d], aurocs[d])
    )
    own = means[means["detector"] == named]
    row = {key: own[key].iloc[0] for key in ("model", "training", "run", "detector", "settings")}
    row |= {"seeds": " ".join(str(run.seed) for run in runs), "n_seeds": len(runs)}
    row |= {"recommended": recommended[named], "in_best_set": best[named]}
    row["detects"] = sum(verdict.detects for verdict in verdicts)
    for metric, of in own.groupby("metric"):
        row |= {str(metric): of["value"].mean(), f"{metric}_std": of["value"].std()}
        row[f"{metric}_half_width"] = of["sampling_half_width"].median()
    return row


def _spread(row: Any, metric: str) -> str:
    """Mean and standard deviation over seeds."""
    value, std = row[metric], row[f"{metric}_std"]
    return f"{percent(value)}%" if std != std else f"{percent(value)}% ± {percent(std)}"


def _mean_cell(row: Any, metric: str) -> Cell:
    text, half = _spread(row, metric).replace("%", ""), row[f"{metric}_half_width"]
    return Cell(text, row[metric], "" if half != half else f"±{percent(half)}")


def _weak(row: Any) -> Iterator[str]:
    if row["fpr95"] > WEAK:
        yield f"This is weak: FPR95 of {row['detector']} is {percent(row['fpr95'])}%."


def _narrow(table: Table) -> Table:
    """The first rows, with names that leave room for the numbers."""
    rows = [list(row) for row in table.rows[:_ROWS]]
    others = sum(
        2 + max(len(t) for t in (head.text, head.note, *(row[k].text for row in rows)))
        for k, head in enumerate(table.heads)
        if k
    )
    room = max(_LETTERS, _WIDTH - others)
    for row in rows:
        text = row[0].text
        row[0] = name_cell(text if len(text) <= room else f"{text[: room - 1]}…")
    left = len(table.rows) - len(rows)
    notes = [f"{counted(left, 'configuration')} more: see the report."] if left else []
    return replace(table, rows=rows, notes=[*notes, *table.notes])
