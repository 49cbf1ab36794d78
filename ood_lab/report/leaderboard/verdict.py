"""The verdict over models and seeds: means, standard deviations and counts of verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from ood_lab.common.english import counted, listed
from ood_lab.report.leaderboard.detector_runs import DetectorRun
from ood_lab.report.leaderboard.long_table import MEAN, Leaderboard, aggregate
from ood_lab.report.leaderboard.run_names import labels, short_names, trainings
from ood_lab.report.leaderboard.significance import mark_best
from ood_lab.report.rendering.blocks import Block, Folded, Text
from ood_lab.report.rendering.metric_definitions import DAGGER, fpr95_sentence, percent
from ood_lab.report.rendering.sentences import listing
from ood_lab.report.rendering.table import Cell, Head, Table, name_cell, plain_table
from ood_lab.report.verdict.rules import WEAK

#: Rows on a terminal, its width, and the fewest letters of a name there.
_ROWS, _WIDTH, _LETTERS = 10, 80, 16
Row = Mapping[Any, Any] | pd.Series
_COUNTS = ("recommended", "in_best_set", "detects")


@dataclass(frozen=True, eq=False)
class BoardVerdict:
    """What the runs of a leaderboard found, of their rows of the kinds ``verdict`` and ``shift``.

    A configuration is all that differs between runs but the seed.
    """

    board: Leaderboard

    @cached_property
    def runs(self) -> list[DetectorRun]:
        """Those that have a verdict on detectors."""
        return [run for run in self.board.runs if run.verdict.named]

    @cached_property
    def detectors(self) -> pd.DataFrame:
        """One row per detector and configuration; the runs need a verdict.

        ``recommended, in_best_set``: by how many of ``n_seeds``; ``detects``: in how many any
        detector does. ``auroc, fpr95``: mean over seeds of the mean over datasets, ``*_std``: their
        standard deviation (n - 1), ``*_half_width``: of the 95% sampling interval, mean over seeds.
        ``best``: not significantly worse than the highest AUROC of all.
        """
        single = pd.concat([_means_of(run) for run in self.runs])
        single["training"] = single["run"].map(trainings(self.board.runs))
        rows = short_names(aggregate(single), self.runs)
        lost = {run.sweep for run in self.runs if run.at_chance}
        seeds = Counter(run.sweep for run in self.runs)
        pairs = {
            (run.sweep, "auroc", MEAN, name): run.verdict.detects and name in run.verdict.best
            for run in self.runs
            for name in rows.loc[rows["run"] == run.sweep, "detector"]
            if seeds[run.sweep] == 1
        }
        rows["best"] = mark_best(rows, pairs, lost)
        wide = rows[rows["metric"] == "auroc"].drop(columns=["metric", "dataset", "low"])
        fpr95 = rows[rows["metric"] == "fpr95"][["run", "detector", *_columns("")]]
        wide = wide.rename(columns=_columns("auroc")).merge(fpr95.rename(columns=_columns("fpr95")))
        keys = list(wide[["run", "detector"]].itertuples(index=False, name=None))
        named = Counter((run.sweep, run.verdict.recommended) for run in self.runs)
        within = Counter((run.sweep, name) for run in self.runs for name in run.verdict.best)
        detects = Counter(run.sweep for run in self.runs if run.verdict.detects)
        counts = [(named[key], within[key], detects[key[0]]) for key in keys]
        return wide.assign(**dict(zip(_COUNTS, zip(*counts, strict=True), strict=True)))

    @cached_property
    def rows(self) -> pd.DataFrame:
        """Of :attr:`detectors` the one of each configuration that most seeds recommend."""
        order = ["recommended", "in_best_set", "auroc"]
        rows = self.detectors.sort_values(order, ascending=False, kind="stable")
        rows = rows.drop_duplicates("run").sort_values("auroc", ascending=False, kind="stable")
        return rows.assign(configuration=labels(rows))

    @property
    def sentences(self) -> list[str]:
        """The verdict in words."""
        return [*self._without(), *(self._found() if self.runs else ())]

    def blocks(self, page: bool = False) -> list[Block]:
        """What a terminal ends with, and what a page begins with."""
        shown: list[Block] = []
        if self.runs:
            shown.append(self.table() if page else _narrow(self.table()))
        shifts = [run.verdict.shift for run in self.runs if len(run.verdict.shift)]
        if page and shifts:
            by = pd.concat(shifts).groupby(["dataset", "encoder", "axis", "metric"], sort=False)
            means = by["value"].agg(mean="mean", std="std", runs="count").reset_index()
            table = plain_table("Shift of the datasets over runs", means.to_dict("records"))
            shown.append(Folded(table.caption, [table], page_only=True))
        return [*shown, *(Text(sentence, "answer") for sentence in self.sentences)]

    def table(self) -> Table:
        """One row per configuration."""
        heads = [Head("configuration", "ascending"), Head("detector", "ascending")]
        heads += [Head("recom-", note="mended"), Head("best", note="set"), Head("detects")]
        heads += [Head("AUROC %"), Head("FPR95 %", "ascending")]
        cells = [
            [
                *(name_cell(row[key]) for key in ("configuration", "detector")),
                *(Cell(f"{row[k]}/{row['n_seeds']}", row[k] / row["n_seeds"]) for k in _COUNTS),
                *(_mean_cell(row, metric) for metric in ("auroc", "fpr95")),
            ]
            for row in self.rows.to_dict("records")
        ]
        auroc, fpr95 = (percent(self.rows[f"{m}_half_width"].median()) for m in ("auroc", "fpr95"))
        notes = [
            "k/n: k of n seeds recommend the detector, have it in the set of the best, or have "
            "any detector that detects.",
            f"Mean over {self._counted()}; a ± b: mean and standard deviation over seeds.",
            f"Simultaneous 95% sampling intervals: AUROC ±{auroc}, FPR95 ±{fpr95} points (median).",
            f"{fpr95_sentence(self.board.fpr95_positive)}.",
        ]
        return Table("Verdict by configuration", heads, cells, names=2, notes=notes)

    def _counted(self) -> str:
        """The datasets that count, and those that do not, with the reason."""
        left = {name: why for run in self.runs for name, why in run.verdict.left.items()}
        words = {"flagged": DAGGER, "too_few": "too few images"}
        names = [f"{name} ({words[why]})" for name, why in left.items()]
        n = counted(len(self.board.sets) - len(left), "dataset")
        return f"{n}, without {listing(names)}" if names else n

    def _without(self) -> Iterator[str]:
        if left := len(self.board.runs) - len(self.runs):
            has = "run has" if left == 1 else "runs have"
            yield f"{left} {has} no verdict: a run without ID accuracy above chance has none."

    def _found(self) -> Iterator[str]:
        rows = self.rows
        if not rows["detects"].any():
            yield "No detector detects these datasets in any run: no mean AUROC is above chance."
            return
        if len(rows) == 1:
            yield from self._recommended(rows.iloc[0])
        elif len({frozenset(run.verdict.left) for run in self.runs}) > 1:
            yield "The runs leave other datasets out of their means, so these do not compare."
        else:
            yield from self._first()
        if lost := list(rows.loc[rows["detects"] == 0, "configuration"]):
            yield f"No detector detects these datasets in any seed of {listing(lost)}."

    def _recommended(self, row: Row) -> Iterator[str]:
        name, n = row["detector"], row["n_seeds"]
        found = Counter(run.verdict.recommended for run in self.runs if run.verdict.recommended)
        names = [f"{other} by {k} of {counted(n, 'seed')}" for other, k in found.most_common()]
        yield f"Recommended detector: {listed(names)}."
        yield f"{name} is in the set of the best in {row['in_best_set']} of {counted(n, 'seed')}."
        yield from _numbers(row, name)

    def _first(self) -> Iterator[str]:
        """The highest mean AUROC of all models, and what is not significantly worse."""
        rows = self.detectors[self.detectors["best"]].sort_values("auroc", ascending=False)
        if rows.empty:
            yield "No mean AUROC over seeds is significantly above 50%."
            return
        known = self.rows.set_index("run")["configuration"]
        names = [f"{row['detector']} ({known[row['run']]})" for row in rows.to_dict("records")]
        yield f"Highest mean AUROC: {names[0]}."
        yield from _numbers(rows.iloc[0], rows.iloc[0]["detector"])
        if len(names) > 1:
            yield f"Not significantly worse: {listing(names[1:])}."
        else:
            yield "All other detectors and configurations are significantly worse."


def _columns(metric: str) -> dict[str, str]:
    """The columns of a metric by those of :func:`aggregate`."""
    names = {"value": metric, "seed_std": f"{metric}_std"}
    return names | {"sampling_half_width": f"{metric}_half_width"}


def _means_of(run: DetectorRun) -> pd.DataFrame:
    """The means of all detectors in the verdict of one run, as the leaderboard has its numbers."""
    rows = run.verdict.rows
    rows = rows[rows["metric"].isin([f"{MEAN}_auroc", f"{MEAN}_fpr95"])]
    return rows.assign(
        run=run.sweep,
        dataset=MEAN,
        seed=run.seed,
        metric=rows["metric"].str.removeprefix(f"{MEAN}_"),
        settings=rows["detector"].map(run.settings),
        sampling_half_width=(rows["ci_high"] - rows["ci_low"]) / 2,
        low=rows["ci_low"],
    )


def _numbers(row: Row, name: str) -> Iterator[str]:
    auroc, fpr95 = (_mean_cell(row, metric).text for metric in ("auroc", "fpr95"))
    yield f"AUROC {auroc}%, FPR95 {fpr95}%, mean over {counted(row['n_seeds'], 'seed')}."
    if row["fpr95"] > WEAK:
        yield f"This is weak: FPR95 of {name} is above 50%."


def _mean_cell(row: Row, metric: str) -> Cell:
    """Mean and standard deviation over seeds, with the ± of the sampling interval."""
    value, std, half = (row[name] for name in _columns(metric).values())
    text = percent(value) + ("" if std != std else f" ± {percent(std)}")
    return Cell(text, value, "" if half != half else f"±{percent(half)}")


def _narrow(table: Table) -> Table:
    """The first rows, with names that leave room for the numbers."""
    rows = table.rows[:_ROWS]
    heads = [max(len(head.text), len(head.note)) for head in table.heads]
    widths = [max(heads[k], *(len(row[k].text) for row in rows)) for k in range(len(heads))]
    room = max(_LETTERS, _WIDTH - sum(widths[1:]) - 2 * len(widths[1:]))
    names = [t if len(t) <= room else f"{t[: room - 1]}…" for t in (row[0].text for row in rows)]
    cut = [[name_cell(name), *row[1:]] for name, row in zip(names, rows, strict=True)]
    left = len(table.rows) - len(rows)
    notes = [f"{counted(left, 'configuration')} more: see the report."] if left else []
    return replace(table, rows=cut, notes=[*notes, *table.notes])
