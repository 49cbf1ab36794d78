"""The verdict over models and seeds, of the verdicts of their runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pandas as pd

from ood_lab.report.leaderboard.detector_runs import DetectorRun
from ood_lab.report.leaderboard.long_table import MEAN, Leaderboard, aggregate
from ood_lab.report.leaderboard.run_names import labels, short_names, trainings
from ood_lab.report.leaderboard.significance import mark_best
from ood_lab.report.verdict import BoardVerdict

#: Columns of :func:`aggregate`, and what their names end with in a verdict.
_STATISTICS = {"value": "", "seed_std": "_std", "sampling_half_width": "_half_width"}


def board_verdict(board: Leaderboard) -> BoardVerdict:
    """The verdict over models and seeds: means, standard deviations and counts of verdicts."""
    runs = [run for run in board.runs if run.verdict.named]
    detectors = _verdict_rows(runs, board.runs) if runs else pd.DataFrame()
    rows = detectors
    if runs:
        order = ["recommended", "in_best_set", "auroc"]
        rows = detectors.sort_values(order, ascending=False, kind="stable").drop_duplicates("run")
        rows = rows.sort_values("auroc", ascending=False, kind="stable")
        rows = rows.assign(configuration=labels(rows))
    return BoardVerdict(
        detectors,
        rows,
        verdicts=[run.verdict for run in runs],
        n_sets=len(board.sets),
        positive=board.fpr95_positive,
        without=len(board.runs) - len(runs),
    )


def _verdict_rows(runs: Sequence[DetectorRun], of_board: Sequence[DetectorRun]) -> pd.DataFrame:
    """A row for every detector and configuration, see :attr:`BoardVerdict.detectors`."""
    single = pd.concat([_means_of(run) for run in runs])
    single["training"] = single["run"].map(trainings(of_board))
    rows = short_names(aggregate(single), runs)
    lost = {run.sweep for run in runs if run.at_chance}
    seeds = Counter(run.sweep for run in runs)
    pairs = {
        (run.sweep, "auroc", MEAN, name): run.verdict.detects and name in run.verdict.best
        for run in runs
        for name in rows.loc[rows["run"] == run.sweep, "detector"]
        if seeds[run.sweep] == 1
    }
    rows["best"] = mark_best(rows, pairs, lost)
    fpr95 = rows[rows["metric"] == "fpr95"][["run", "detector", *_STATISTICS]]
    rows = rows[rows["metric"] == "auroc"].drop(columns=["metric", "dataset", "low"])
    auroc, fpr95 = (
        table.rename(columns={name: f"{metric}{end}" for name, end in _STATISTICS.items()})
        for metric, table in (("auroc", rows), ("fpr95", fpr95))
    )
    wide = auroc.merge(fpr95)
    named = Counter((run.sweep, run.verdict.recommended) for run in runs)
    within = Counter((run.sweep, name) for run in runs for name in run.verdict.best)
    detects = Counter(run.sweep for run in runs if run.verdict.detects)
    keys = list(wide[["run", "detector"]].itertuples(index=False, name=None))
    return wide.assign(
        recommended=[named[key] for key in keys],
        in_best_set=[within[key] for key in keys],
        detects=[detects[run] for run, _ in keys],
    )


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
