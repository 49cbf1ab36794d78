"""A W&B workspace that compares finished runs, from the names of what runs show."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import wandb

from ood_lab.common.errors import UserError
from ood_lab.common.files import write_text
from ood_lab.common.grouping import distinct
from ood_lab.metrics import metric_of
from ood_lab.report.rendering.page import flatten
from ood_lab.report.results_lookup import RunView
from ood_lab.run.tracking.experiment_loggers import refusals_explained, summary_values
from ood_lab.schema.finished_run import FinishedRun
from ood_lab.schema.results import of_kind

if TYPE_CHECKING:
    from wandb_workspaces.workspaces import Workspace

#: Settings that differ between any two runs and are no choice of the user.
_NEVER_SWEPT = ("paths.", "logger.", "hydra.", "name", "runs", "tags")
#: Columns that the table of runs shows first, and axes of the sweep's plot.
_MOST = 8
#: Detectors whose metrics over the levels have panels of their own.
_LEVELLED = 3


@dataclass(frozen=True)
class Compared:
    """What there is to compare, by the names under which W&B has it (docs/how-to/wandb.md).

    Attributes:
        groups: the experiments of the runs.
        metrics: the headline metrics.
        detectors: the highest mean AUROC over sets and runs first.
        sets: OOD sets, ordered by increasing shift.
        swept: settings that are not the same in all runs.
        keys: of the summaries that the runs have.
    """

    groups: list[str]
    metrics: list[str]
    detectors: list[str]
    sets: list[str]
    swept: list[str]
    keys: list[str]

    def known(self, names: Iterable[str]) -> list[str]:
        """Those of the names that a run has in its summary."""
        return [name for name in names if name in self.keys]

    def levels(self, axis: str, detector: str, metric: str) -> list[str]:
        """The keys of a metric over the levels of an axis, from the lowest level."""
        own = (key.split("/") for key in self.keys if key.startswith(f"level/{axis}/"))
        found = {float(level) for _, _, level, *rest in own if rest == [detector, metric]}
        return [f"level/{axis}/{level:g}/{detector}/{metric}" for level in sorted(found)]


def compared(runs: Sequence[FinishedRun]) -> Compared:
    """What the runs that scored detectors have to compare.

    Raises:
        UserError: there is none.
    """
    runs = [run for run in runs if run.record.detectors]
    if not runs:
        raise UserError(
            "none of these runs has scored a detector, so there is nothing to compare: name others "
            "with runs=..."
        )
    tables = [of_kind(run.results, "detection") for run in runs]
    views = [RunView(table) for table in tables]
    means = pd.DataFrame(
        [(name, view.mean("auroc", name).value) for view in views for name in view.detectors],
        columns=["detector", "auroc"],
    )
    ranking = means.groupby("detector", sort=False)["auroc"].mean()
    ranking = ranking.sort_values(ascending=False, kind="stable")
    return Compared(
        sorted({run.name for run in runs}),
        distinct(m for view in views for m in view.headlines),
        list(map(str, ranking.index)),
        distinct(s for view in views for s in view.sets),
        _differing([dict(flatten(run.config)) for run in runs]),
        distinct(key for table in tables for key in summary_values(table)),
    )


def _differing(configs: Sequence[Mapping[str, str]]) -> list[str]:
    numbers = pd.DataFrame(configs).nunique(dropna=False)
    differing = map(str, numbers.index[numbers > 1])
    return [key for key in differing if not key.startswith(_NEVER_SWEPT)]


def panels(runs: Compared) -> dict[str, list[Any]]:
    """Panels by section: leaderboard, shift, and sweep where a setting differs."""
    from wandb_workspaces.reports import v2 as wr

    def bars(title: str, names: Sequence[str]) -> Any:
        return wr.BarPlot(title=title, metrics=list(names), max_bars_to_show=100)

    board = [
        bars(f"Mean {m.upper()} over the OOD sets", [f"mean/{d}/{m}" for d in runs.detectors])
        for m in runs.metrics
    ]
    shift = [
        bars(f"{m.upper()} on {ood}", names)
        for ood in runs.sets
        for m in runs.metrics
        if (names := runs.known(f"{d}/{ood}/{m}" for d in runs.detectors))
    ]
    levels = [
        bars(f"{metric_of(m).title} of {d} by {axis} level", names)
        for d in runs.detectors[:_LEVELLED]
        for m in runs.metrics
        for axis in ("semantic", "covariate")
        if (names := runs.levels(axis, d, m))
    ]
    found = {
        "Leaderboard": [*board, bars("ID accuracy", ["id_accuracy"])],
        "Levels of shift": [
            *levels,
            *shift,
            bars("DAD", runs.known(f"{d}/dad" for d in runs.detectors)),
        ],
    }
    if runs.swept:
        goals = [f"mean/{runs.detectors[0]}/{metric}" for metric in runs.metrics]
        axes: list[Any] = [*map(wr.Config, runs.swept[:_MOST]), *map(wr.SummaryMetric, goals)]
        found["Sweep"] = [
            wr.ParallelCoordinatesPlot(
                title="Settings and what came of them",
                columns=[wr.ParallelCoordinatesPlotColumn(axis) for axis in axes],
            ),
            *(wr.ParameterImportancePlot(with_respect_to=goal) for goal in goals),
        ]
    return found


def dashboard(runs: Compared, entity: str, project: str) -> Workspace:
    """The workspace, not yet sent; it is called like the project."""
    from wandb_workspaces import workspaces

    best = f"mean/{runs.detectors[0]}/auroc"
    columns = [f"summary:mean/{d}/{m}" for d in runs.detectors[:_MOST] for m in runs.metrics]
    return workspaces.Workspace(
        entity=entity,
        project=project,
        name=project,
        sections=[
            workspaces.Section(name=name, panels=shown, is_open=True)
            for name, shown in panels(runs).items()
        ],
        runset_settings=workspaces.RunsetSettings(
            filters=[workspaces.Metric("Group").isin(runs.groups)],
            order=[workspaces.Ordering(workspaces.Summary(best), ascending=False)],
            pinned_columns=[f"config:{key}.value" for key in runs.swept[:_MOST]] + columns,
        ),
    )


def default_entity() -> str:
    """That of the account."""
    with refusals_explained():
        return str(wandb.Api().default_entity)


def write_dashboard(workspace: Workspace, file: Path) -> None:
    """Writes what W&B's server would be sent."""
    # The library has no public way to see a specification without a server.
    content = workspace._to_model().model_dump(mode="json", by_alias=True, exclude_none=True)
    write_text(json.dumps(content, indent=2) + "\n", file)


def upload_dashboard(workspace: Workspace) -> str:
    """Saves it as a new view; returns its address."""
    with refusals_explained():
        return str(workspace.save().url)
