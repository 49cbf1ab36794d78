"""What more training images bring: ID accuracy and AUROC by shots (arXiv:2412.12683, figure 7)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from statistics import fmean

import pandas as pd

from ood_lab.common.english import listed
from ood_lab.common.grouping import grouped
from ood_lab.report.leaderboard.detector_runs import ALL_SHOTS, DetectorRun
from ood_lab.report.leaderboard.long_table import Leaderboard

log = logging.getLogger(__name__)
COLUMNS = ["model", "background", "detector", "metric", "shots", "value", "seed_std", "n_seeds"]
_POINT = ["model", "background", "detector", "metric", "shots"]


def shots_rows(board: Leaderboard) -> pd.DataFrame:
    """ID accuracy, and AUROC (the mean over all OOD sets) of every detector, by number of shots.

    Only of models with at least two numbers; empty where there is none, or where two
    configurations would share a point.

    Returns:
        Columns :data:`COLUMNS` and ``run``; ``shots`` = -1 stands for all images, and is last;
        ``detector`` is empty for the accuracy.
    """
    chosen = board.rows["metric"].isin(["id_accuracy", "auroc"])
    rows = board.rows[
        chosen & (board.rows["dataset"].isna() | (board.rows["dataset"] == board.summary))
    ].copy()
    runs = {run.sweep: run for run in board.runs}
    rows["shots"] = [runs[name].shots for name in rows["run"]]
    rows["background"] = [runs[name].background for name in rows["run"]]
    rows["detector"] = rows["detector"].fillna("")
    rows = rows[rows.groupby("model")["shots"].transform("nunique") > 1]
    if (twice := rows[rows.duplicated(_POINT)]).size:
        log.warning(
            "no figure over shots: %s has two configurations of the same shots and background",
            twice["model"].iloc[0],
        )
        return rows.iloc[:0]
    rows = rows.sort_values("shots", key=lambda s: s.where(s > 0, s.max() + 1), kind="stable")
    rows = rows.sort_values(
        ["model", "background", "metric", "detector"],
        key=lambda column: column.map(_place(rows)) if column.name == "detector" else column,
        kind="stable",
    )
    return rows[[*COLUMNS, "run"]].reset_index(drop=True)


def _place(rows: pd.DataFrame) -> dict[str, int]:
    """Place of every detector in the table, which has the best AUROC first."""
    best = rows.groupby("detector", sort=False)["value"].max()
    return {str(name): k for k, name in enumerate(best.sort_values(ascending=False).index)}


def best_shots(runs: Sequence[DetectorRun]) -> tuple[list[DetectorRun], list[str]]:
    """Of the runs of a model that differ in shots, those of its best number (section 4.4).

    The best has the largest mean AUROC over the OOD sets, of its best detector and the mean over
    its seeds: it is chosen on the sets that it is compared on, as in the paper.

    Returns:
        The runs, and a sentence for each model with a choice.
    """
    models = grouped(((run.model, run.background), run) for run in runs)
    chosen, notes = [], []
    for (model, _), of_model in models.items():
        by_shots = grouped((run.shots, run) for run in of_model)
        best = max(by_shots, key=lambda shots: fmean(map(_best_auroc, by_shots[shots])))
        chosen += by_shots[best]
        if len(by_shots) > 1:
            words = {n: "all images" if n == ALL_SHOTS else f"{n} shots" for n in by_shots}
            notes.append(
                f"{model} is shown with {words[best]}, the best of {listed(list(words.values()))} "
                "by mean AUROC on these OOD datasets: its numbers are optimistic."
            )
    return chosen, notes


def _best_auroc(run: DetectorRun) -> float:
    return max(run.view.mean("auroc", detector).value for detector in run.view.detectors)


def best_of_all(board: Leaderboard) -> dict[str, tuple[str, float]]:
    """Metric → name and value of its best row: every method, whatever it was trained on."""
    of_board, best = board.rows, {}
    for metric, key in (("id_accuracy", "model"), ("auroc", "detector")):
        rows = of_board[(of_board["metric"] == metric) & of_board["value"].notna()]
        rows = rows[rows["dataset"].fillna(board.summary) == board.summary]
        if len(rows):
            row = rows.iloc[int(rows["value"].to_numpy().argmax())]
            best[metric] = (str(row[key]), float(row["value"]))
    return best
