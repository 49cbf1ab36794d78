"""One table over the question benchmarks of several chat models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ood_lab.errors import UserError
from ood_lab.io import read_json
from ood_lab.report.blocks import Links
from ood_lab.report.leaderboard import MEAN
from ood_lab.report.page import Page, Section
from ood_lab.report.protocol import MISSING
from ood_lab.report.table import Cell, Head, Table, count_cell, estimate_cell, name_cell
from ood_lab.results import RESULTS, read_results, whole, why_missing

#: What the runs of one table have in common: they were asked the very same questions.
_ALIKE = ["benchmark", "data", "asked"]
_KEPT = ("split", "metric", "value", "ci_low", "ci_high", "n", "unit")


@dataclass(frozen=True)
class BenchmarkRun:
    """A finished run of a benchmark.

    Attributes:
        path: its folder.
        manifest: what it says of its questions and of its benchmark.
        results: its results table.
    """

    path: Path
    manifest: Mapping[str, Any]
    results: pd.DataFrame

    @property
    def about(self) -> dict[str, Any]:
        """The columns that all its rows share."""
        benchmark, questions = self.manifest["benchmark"], self.manifest["questions"]
        return {
            "benchmark": benchmark["name"],
            "data": benchmark["about"],
            "asked": str(questions["sha256"])[:10],
            "questions": int(questions["n"]),
            "images": int(questions["images"]),
        }

    @property
    def page(self) -> Path:
        """Its page, which may not have been written."""
        return self.path / str(self.manifest["benchmark"]["page"])


def read_benchmarks(folders: Sequence[Path]) -> list[BenchmarkRun]:
    """The runs among these folders that asked a chat model.

    Raises:
        UserError: there is none, or one of an earlier version.
    """
    found = []
    for folder in folders:
        manifest = read_json(folder / "manifest.json")
        if "questions" in manifest and (folder / RESULTS).exists():
            found.append(BenchmarkRun(folder, manifest, read_results(folder)))
    if not found:
        raise UserError(f"no chat model was asked in {', '.join(map(str, folders))}")
    return found


def answer_board(runs: Sequence[BenchmarkRun]) -> pd.DataFrame:
    """The headline metrics of all runs, those of one set of questions together.

    Returns:
        ``benchmark, data, asked, questions, images, model, label, column, split, metric, value,
        ci_low, ci_high, n, unit, reason, run``; shares. ``label`` is the model, with the folder of
        the run where a table has several of its runs; ``reason`` is why a value is missing.
    """
    rows: list[dict[str, Any]] = []
    for run in runs:
        results = whole(run.results)
        for split, metric, words in run.manifest["benchmark"]["headlines"]:
            # Where unparsed answers are treated in two ways, the first one is the headline.
            part = results[(results["split"] == split) & (results["metric"] == metric)]
            for row in part.head(1).to_dict("records"):
                kept = {key: row[key] for key in _KEPT}
                about = {**run.about, "model": str(row["model"]), "column": words}
                reason = why_missing(row) if math.isnan(row["value"]) else ""
                rows.append({**about, **kept, "reason": reason, "run": str(run.path)})
    table = pd.DataFrame(rows)
    several = table.groupby([*_ALIKE, "model"])["run"].transform("nunique") > 1
    folders = table["run"].map(lambda run: "/".join(Path(run).parts[-2:]))
    table.insert(6, "label", table["model"].where(~several, table["model"] + " (" + folders + ")"))
    return table.sort_values("benchmark", kind="stable")


def board_tables(board: pd.DataFrame) -> list[Table]:
    """A table for every set of questions, a row per run."""
    parts = [part for _, part in board.groupby(_ALIKE, sort=False)]
    titles = []
    for part in parts:
        first = part.iloc[0]
        about = f"{first['questions']:,} questions about {first['images']:,} images"
        titles.append(f"{first['benchmark']} on {first['data']}, {about}, %")
    return [
        _table(
            title if titles.count(title) == 1 else f"{title} (questions {part['asked'].iloc[0]})",
            part,
        )
        for title, part in zip(titles, parts, strict=True)
    ]


def _table(caption: str, part: pd.DataFrame) -> Table:
    columns = list(dict.fromkeys(part["column"]))
    rows = []
    for _, of_run in part.groupby("run", sort=False):
        found, first = of_run.set_index("column").to_dict("index"), of_run.iloc[0]
        cells = [estimate_cell(found[c]) if c in found else Cell(MISSING) for c in columns]
        rows.append([name_cell(first["label"]), count_cell(float(first["questions"])), *cells])
    heads = [Head("model", "ascending"), Head("questions"), *map(Head, columns)]
    notes = [
        f"{MISSING} of {', '.join(lost['label'] + ' ' + lost['column'])}: {reason}."
        for reason, lost in part[part["reason"] != ""].groupby("reason", sort=False)
    ]
    notes.append("± half of the 95% interval.")
    return Table(caption, heads, rows, notes=notes, spreads=True)


def detector_table(leaderboard: pd.DataFrame) -> pd.DataFrame:
    """AUROC and FPR95 of every detector on every OOD set, in percent, best mean AUROC first.

    Args:
        leaderboard: ``leaderboard.csv`` of ``task=compare``.
    """
    names = {"auroc": "AUROC", "fpr95": "FPR95"}
    rows = leaderboard[leaderboard["metric"].isin(names) & leaderboard["detector"].notna()]
    columns = rows["ood"].astype(str) + " " + rows["metric"].map(names)
    table = (
        rows.assign(column=columns, value=(100 * rows["value"]).round(1))
        .pivot_table("value", ["model", "detector"], "column", "mean", sort=False)
        .sort_values("mean AUROC", ascending=False, kind="stable")
    )
    means = [name for name in table if str(name).startswith(f"{MEAN} ")]
    return table[[*means, *(name for name in table if name not in means)]].reset_index()


def board_page(
    tables: Sequence[Table],
    detectors: Mapping[Path, pd.DataFrame],
    runs: Sequence[BenchmarkRun],
    manifest: Mapping[str, Any],
) -> Page:
    """The page ``benchmarks.html``: chat models first, detectors beside them.

    Args:
        tables: see :func:`board_tables`.
        detectors: tables of detectors by the folder of their leaderboard, which is linked.
        runs: are linked.
        manifest: ``title`` is read; all of it is shown.
    """
    beside = [_detectors(folder, table) for folder, table in detectors.items()]
    pages = [(str(run.manifest["title"]), run.page) for run in runs]
    pages += [(f"Detectors: {f.parent.parent.name}", f / "leaderboard.html") for f in detectors]
    links = [(title, page.absolute().as_uri()) for title, page in pages if page.exists()]
    return Page(
        title=str(manifest["title"]),
        sentence="Chat models, and the detectors beside them",
        summary=tables,
        sections=[Section("Detectors", beside), Section("Pages", [Links(links)] if links else [])],
        manifest=manifest,
        downloads=["benchmarks.csv"],
    )


def _detectors(folder: Path, table: pd.DataFrame) -> Table:
    rows = [[_cell(value) for value in row] for row in table.itertuples(index=False)]
    heads = [Head(str(name)) for name in table]
    return Table(f"Detectors: {folder.parent.parent.name}, %", heads, rows, names=2)


def _cell(value: Any) -> Cell:
    if isinstance(value, float):
        return Cell(MISSING) if math.isnan(value) else Cell(f"{value:.1f}", value)
    return name_cell(value)
