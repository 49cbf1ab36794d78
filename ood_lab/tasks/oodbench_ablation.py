"""One table over finished OODBench runs that differ in their settings, and a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console

from ood_lab.errors import UserError
from ood_lab.io import read_config, read_json, read_table, write_csv
from ood_lab.report.figures.bars import bar_panels
from ood_lab.report.figures.drawing import PlannedFigure, write_all
from ood_lab.report.figures.layout import wrapped
from ood_lab.report.oodbench_tables import SPLITS, ablation_tables, whole_splits
from ood_lab.run.identity import leaves
from ood_lab.run.workspace import Task, Workspace


@dataclass(frozen=True, kw_only=True)
class OODBenchAblation(Task):
    """Writes ``ablation.csv`` and ``figures/ablation``: metrics of every split, run by run.

    A row names what differs between the runs: ``T``, the image-text models, the chat model, ...
    The number of pairs of each split before any cut is there too.

    Args:
        runs: run folders of ``task=oodbench``.
        metrics: to draw.

    Raises:
        UserError: no run, or one that is not finished or of another task.
    """

    runs: Sequence[str]
    metrics: Sequence[str] = ("accuracy", "f1")

    def run(self, ws: Workspace) -> None:
        """See the class."""
        runs = [Path(run) for run in self.runs]
        if not runs:
            raise UserError("no run: give run folders of task=oodbench as runs=[RUN_A,RUN_B]")
        if missing := [run for run in runs if not (run / "judged.parquet").is_file()]:
            raise UserError(f"{missing[0]} is not a finished run of task=oodbench")
        labels = differences_of([_settings(run) for run in runs])
        table = pd.concat([_rows(r, n) for r, n in zip(runs, labels, strict=True)])
        write_csv(table, ws.folder / "ablation.csv")
        ws.manifest["runs"] = dict(zip(labels, map(str, runs), strict=True))
        console = Console()
        console.print(ablation_tables(table, console.width))
        caption = "Answers to yes/no questions by setting, with 95% intervals."
        figure = PlannedFigure("ablation", "Ablation", caption, partial(self._figure, table))
        write_all(ws.folder / "figures", [figure])

    def _figure(self, table: pd.DataFrame) -> Figure:
        """A panel per metric, a row per run and a bar per split."""
        metrics = {metric: metric for metric in self.metrics}
        runs = {str(name): wrapped(str(name), 20) for name in table["setting"].unique()}
        series = ("split", SPLITS)
        return bar_panels(table, metrics, runs, "95% intervals.", row="setting", series=series)


def differences_of(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """What of the settings differs, as a label for each of them: ``threshold=0.05``.

    Settings that one of them lacks count as different; equal ones are numbered.
    """
    keys = sorted({key for each in settings for key in each})
    differing = [k for k in keys if len({str(each.get(k)) for each in settings}) > 1]
    labels = [
        " ".join(f"{k.rpartition('.')[2]}={each[k]}" for k in differing if k in each) or "run"
        for each in settings
    ]
    return [
        label if labels.count(label) == 1 else f"{label} ({place + 1})"
        for place, label in enumerate(labels)
    ]


def _settings(run: Path) -> dict[str, Any]:
    """What may differ between ablations: task, chat model, and which image-text models divide."""
    config = read_config(run)
    read = {key: config.get(key) or {} for key in ("task", "lvlm", "annotations")}
    found = {key: value for key, value in leaves(read) if not str(key).startswith("task.report")}
    return found | {"image_text": "+".join(config.get("image_text") or {}), "seed": config["seed"]}


def _rows(run: Path, label: str) -> pd.DataFrame:
    manifest = read_json(run / "manifest.json")
    rows = whole_splits(read_table(run / "results.parquet"))
    rows = rows[rows["unparsed"] == manifest["unparsed"]]
    before = (manifest.get("division") or {}).get("pairs") or {}
    initial = [before.get(split) if split != "id" else None for split in rows["split"]]
    return rows.assign(setting=label, initial_pairs=initial)
