"""Experiment loggers: checks access to W&B, and writes a run's results to it."""

from __future__ import annotations

import io
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stderr
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import wandb
from omegaconf import DictConfig

from ood_lab.common.arguments import Settings
from ood_lab.common.errors import UserError, one_line
from ood_lab.common.file_records import text_sha256
from ood_lab.metrics import metric_of
from ood_lab.report.results_lookup import RunView
from ood_lab.report.verdict import Verdict
from ood_lab.run.building import nodes
from ood_lab.run.commandline.composition import plain
from ood_lab.schema.finished_run import FinishedRun
from ood_lab.schema.image_columns import LEVELS
from ood_lab.schema.results import RESULTS, whole
from ood_lab.schema.run_record import RunRecord

if TYPE_CHECKING:
    from lightning.pytorch.loggers import Logger, WandbLogger

log = logging.getLogger(__name__)
#: Beginnings of the names of what a W&B sweep may optimise: never a number of evaluated datasets.
_GOALS = ("val/", "train/")
#: Summary keys of one detector at most: more would swamp the dashboard, and stay in the table.
MOST_KEYS = 30


def summary_values(results: pd.DataFrame) -> dict[str, float]:
    """Numbers of a detection table, each under one key, and those that belong to no detector.

    Of a detector, groups of keys come in this order, and a group is skipped where it would be
    more than :data:`MOST_KEYS` in all:

    - ``mean/<detector>/<headline metric>`` and ``<detector>/dad``
    - ``level/<axis>/<level>/<detector>/<metric>``, mean over the sets with levels: AUROC, FPR95,
      then AUPR
    - ``<detector>/<set>/<metric>``, one group a metric, the headline metrics first
    - ``mean/<detector>/<metric>`` and what else there is of whole sets, one group a metric
    """
    view, rows = RunView(results), whole(results)
    own = rows["detector"].notna()
    values = dict(zip(rows.loc[~own, "metric"], rows.loc[~own, "value"].astype(float), strict=True))
    levels = {(m, a): _over_levels(results, m, a) for m in view.level_metrics for a in LEVELS}
    for detector in view.detectors:
        found: dict[str, float] = {}
        for group in _groups(view, detector, levels, rows[rows.detector == detector]):
            new = {key: value for key, value in group.items() if not math.isnan(value)}
            if len(found | new) <= MOST_KEYS:
                found |= new
        values |= found
    return values


def _groups(
    view: RunView, detector: str, levels: Mapping[tuple[str, str], Any], rows: pd.DataFrame
) -> Iterator[dict[str, float]]:
    """The groups of :func:`summary_values`; ``rows`` are the detector's of whole sets."""
    means = {m: view.mean(m, detector).value for m in view.headlines}
    first = {f"mean/{detector}/{m}": value for m, value in means.items()}
    yield first | {f"{detector}/dad": view.get("dad", detector).value}
    for (metric, axis), table in levels.items():
        place, found = f"level/{axis.removesuffix('_level')}", table.get(detector, {})
        yield {f"{place}/{k:g}/{detector}/{metric}": v for k, v in found.items()}
    present = rows.dropna(subset="value").fillna({"dataset": ""}).groupby("metric", sort=False)
    numbers = {
        str(m): dict(zip(part["dataset"], part["value"], strict=True)) for m, part in present
    }
    for metric in dict.fromkeys([*view.headlines, *numbers]):
        if metric.removeprefix("mean_") in view.headlines and metric not in view.headlines:
            continue  # the same number as mean/<detector>/<metric>
        if metric.startswith("fpr95_") and numbers[metric] == numbers.get("fpr95"):
            continue  # the headline FPR95 counts the same class as positive
        yield {_key(detector, d, metric): value for d, value in numbers.get(metric, {}).items()}


def _key(detector: str, dataset: str, metric: str) -> str:
    if dataset:
        return f"{detector}/{dataset}/{metric}"
    if metric.startswith("mean_"):
        return f"mean/{detector}/{metric.removeprefix('mean_')}"
    return f"{detector}/{metric}"


def values_of_metric(
    results: pd.DataFrame, metric: str, place: str, columns: tuple[str, str]
) -> dict[str, float]:
    """One metric as ``{place/first column/second column: value}``."""
    rows = results[(results["metric"] == metric) & results["value"].notna()]
    first, second = (rows[column].astype(str) for column in columns)
    return dict(zip(f"{place}/" + first + "/" + second, rows["value"].astype(float), strict=True))


def answer_values(results: pd.DataFrame) -> dict[str, float]:
    """Metrics of whole sets as ``{split/metric: value}``; of several ways, the first one's."""
    rows = whole(results)
    names = (
        rows["split"].astype(str) + "/" if "split" in rows and rows["split"].notna().any() else ""
    )
    rows = rows.assign(key=names + rows["metric"].astype(str)).drop_duplicates("key")
    return dict(zip(rows["key"], rows["value"].astype(float), strict=True))


def validation_values(record: RunRecord) -> dict[str, float]:
    """What a search may optimise: ``val/accuracy``, and ``val/<detector>/auroc`` after a tuning.

    The accuracy is that of the weights that were kept, the AUROC that of the chosen settings.
    """
    tuned = record.tuning.get("detectors", {})
    values = {f"val/{name}/auroc": each["chosen"]["auroc"] for name, each in tuned.items()}
    accuracy = record.val_accuracy
    return values | ({} if accuracy is None else {"val/accuracy": accuracy})


#: Summary values of each kind of results other than those of answers.
_VALUES: dict[str, Callable[[pd.DataFrame], Mapping[str, float]]] = {
    "detection": summary_values,
    "hierarchy": partial(
        values_of_metric, metric="accuracy", place="dating", columns=("label_level", "subset")
    ),
    "shift": partial(values_of_metric, metric="mean", place="shift", columns=("axis", "dataset")),
    "verdict": lambda rows: {},  # see Verdict.values
}


def table_of(frame: pd.DataFrame) -> wandb.Table:
    """The rows as a W&B table; ``Table(dataframe=...)`` looks up every column for every row.

    It works out the types of its columns from every row, a second for 8,000: those suffice that
    differ in the types of their cells.
    """
    rows = [list(row) for row in zip(*(frame[column].values for column in frame), strict=True)]
    kinds = {tuple(map(type, row)): row for row in rows}
    table = wandb.Table(columns=list(frame.columns), data=list(kinds.values()))
    table.data = rows
    # W&B shows the first 10,000 rows of a table unless it is told otherwise.
    wandb.Table.MAX_ROWS = max(wandb.Table.MAX_ROWS, len(rows))
    return table


def log_results(loggers: Sequence[Logger], run: FinishedRun, record: RunRecord) -> None:
    """Writes the results and pages of a run to every W&B logger, online or offline.

    Whole sets become summary values; see :func:`summary_values` for detectors. The rest
    stays in the table.
    """
    from lightning.pytorch.loggers import WandbLogger

    trackers = [logger.experiment for logger in loggers if isinstance(logger, WandbLogger)]
    if not trackers or not run.has(RESULTS):
        return
    results = run.results
    kinds = {str(kind): rows for kind, rows in results.groupby("kind", sort=False)}
    values: dict[str, float | str] = {**validation_values(record)}
    for kind, rows in kinds.items():
        values |= _VALUES.get(kind, answer_values)(rows)
    if "verdict" in kinds:
        values |= Verdict(results, record).values()
    shown = charts(kinds["detection"]) if "detection" in kinds else {}
    plain = results.astype(object).where(results.notna(), None)  # W&B knows no pd.NA
    for tracker in trackers:
        tracker.summary.update(values)
        tracker.log({"results": table_of(plain), **shown, **_pages(run.folder)})


def push_run(run: FinishedRun, make_logger: Callable[..., WandbLogger]) -> None:
    """Uploads a finished run; one that was pushed before is replaced, not doubled.

    The W&B id is a hash of ``<name>/<config hash>/seed=<s>``. ``make_logger`` is given what is
    known about the run.
    """
    logger = make_logger(
        id=text_sha256(run.label)[:16],
        name=run.label,
        group=run.name,
        job_type="pushed",
        tags=list(run.config.get("tags") or []),
        reinit="finish_previous",
    )
    settings = {**run.config, "manifest": run.record.facts()}
    logger.experiment.config.update(settings, allow_val_change=True)
    log_results([logger], run, run.record)
    wandb.finish()


def _pages(folder: Path) -> dict[str, Any]:
    """The figures and pages of a run folder, if any."""
    figures = sorted((folder / "figures").glob("*.png"))
    with ThreadPoolExecutor() as pool:  # W&B decodes each, for its size
        images = pool.map(wandb.Image, map(str, figures))
    shown: dict[str, Any] = {
        f"figures/{path.stem}": image for path, image in zip(figures, images, strict=True)
    }
    for page in sorted(folder.glob("*.html")):
        shown[page.stem] = wandb.Html(str(page), inject=False)
    return shown


def charts(results: pd.DataFrame) -> dict[str, wandb.plot.CustomChart]:
    """W&B's own charts of a results table, by panel; charts without rows are skipped.

    - ``charts/mean_<metric>``: bars, the mean over the OOD sets, one per detector.
    - ``charts/dad_fpr95``: points, DAD against mean FPR95.
    - ``charts/<metric>_<axis>``: lines over the shift levels, one per detector.
    """
    found: dict[str, wandb.plot.CustomChart] = {}
    view = RunView(results)
    for metric in view.headlines:
        direction = metric_of(metric).direction
        means = {d: view.mean(metric, d).value for d in view.detectors}
        known = sorted((value, d) for d, value in means.items() if not math.isnan(value))
        if known:
            title = f"Mean {metric.upper()} over OOD sets ({direction})"
            table = wandb.Table(columns=["detector", metric], data=[(d, v) for v, d in known])
            found[f"charts/mean_{metric}"] = wandb.plot.bar(table, "detector", metric, title)
    for metric in view.level_metrics:
        for axis in LEVELS:
            found |= _lines(results, metric, axis)
    return found | _scatter(view)


def _lines(results: pd.DataFrame, metric: str, axis: str) -> dict[str, wandb.plot.CustomChart]:
    lines = _over_levels(results, metric, axis)
    if lines.empty:
        return {}
    chart = wandb.plot.line_series(
        xs=lines.index.tolist(),
        ys=[lines[name].tolist() for name in lines],
        keys=[str(name) for name in lines],
        title=f"{metric_of(metric).title} by {axis.replace('_', ' ')}",
        xname=axis,
    )
    return {f"charts/{metric}_{axis}": chart}


def _over_levels(results: pd.DataFrame, metric: str, axis: str) -> pd.DataFrame:
    """A metric by level (rows) and detector (columns), mean over the sets with levels."""
    other = LEVELS[1 - LEVELS.index(axis)]
    rows = results[(results.metric == metric) & results[axis].notna() & results[other].isna()]
    return rows.pivot_table(index=axis, columns="detector", values="value", aggfunc="mean")


def _scatter(view: RunView) -> dict[str, wandb.plot.CustomChart]:
    points = [(d, view.mean("fpr95", d).value, view.get("dad", d).value) for d in view.detectors]
    known: list[Iterable[Any]] = [point for point in points if not any(map(math.isnan, point[1:]))]
    if not known:
        return {}
    table = wandb.Table(columns=["detector", "fpr95", "dad"], data=known)
    title = "DAD against mean FPR95 (left: detects better, up: follows the shift order)"
    return {"charts/dad_fpr95": wandb.plot.scatter(table, "fpr95", "dad", title)}


def begin(loggers: Mapping[str, Mapping[str, Any]]) -> None:
    """Starts W&B's own process, for which its logger would wait, in parallel with what follows.

    This comes before torch and Lightning are loaded: W&B's public API, which ``wandb.init`` loads,
    looks for the source of each of its classes among all modules.
    """
    if node := next(filter(_of_wandb, loggers.values()), None):
        import wandb.apis.public

        # The mode of the first one holds for this process; Lightning would set it too late.
        settings = wandb.Settings(mode="offline") if node.get("offline") else None
        # What it raises is raised again, and explained, where the logger is made.
        ThreadPoolExecutor(1).submit(wandb.setup, settings)


def check_login(loggers: Mapping[str, Mapping[str, Any]]) -> None:
    """Checks for the API key if a W&B logger is to write online.

    Raises:
        UserError: there is no key, or it is malformed.
    """
    nodes = [node for node in loggers.values() if _of_wandb(node)]
    online = os.environ.get("WANDB_MODE", "online") == "online"
    if online and any(not node.get("offline") for node in nodes):
        with refusals_explained():
            wandb.login()


def check_sweep(config: Settings) -> None:
    """Checks the configuration of a W&B sweep, as in ``conf/wandb_sweep.yaml``.

    Raises:
        UserError: its goal is measured on evaluated datasets, or it searches the seed.
    """
    goal = (config.get("metric") or {}).get("name")
    if goal and not str(goal).startswith(_GOALS):
        raise UserError(
            f"the goal of this W&B sweep is {goal}, which is measured on evaluated datasets: the "
            "search would choose settings on them, and their results would be too good. Choose "
            "metric.name=val/accuracy, or val/DETECTOR/auroc with tuning=val_ood"
        )
    if "seed" in (config.get("parameters") or {}):
        raise UserError(
            "seed is a parameter of this W&B sweep: the search would choose a lucky seed. Remove "
            "it, and repeat the best configurations with -m seed=0,1,2"
        )


def check_running_sweep(entity: str | None, project: str | None) -> None:
    """Checks the sweep whose agent has started this process, if one has.

    Raises:
        UserError: see :func:`check_sweep`.
    """
    sweep = os.environ.get("WANDB_SWEEP_ID")
    if not sweep:
        return
    places = os.environ.get("WANDB_ENTITY", entity), os.environ.get("WANDB_PROJECT", project)
    try:
        config = wandb.Api().sweep("/".join(filter(None, (*places, sweep)))).config
    except Exception as error:  # W&B has many, and the search may go on without
        log.warning("the goal of W&B sweep %s could not be checked: %s", sweep, error)
        return
    check_sweep(config)


def make_loggers(cfg: DictConfig, folder: Path) -> list[Logger]:
    """The loggers of the ``logger`` node, with the run's settings logged to them."""
    settings = plain(cfg)
    # Lightning passes an option that W&B warns about.
    with refusals_explained(), redirect_stderr(io.StringIO()):
        loggers = [
            nodes.build(cfg, f"logger.{key}", save_dir=str(folder), **_named(folder, node))
            for key, node in settings["logger"].items()
        ]
        for logger in loggers:
            logger.log_hyperparams(settings)
    return loggers


def _of_wandb(node: Settings) -> bool:
    return str(node.get("_target_", "")).endswith("WandbLogger")


def _named(folder: Path, node: Settings) -> dict[str, str]:
    """The name shown in W&B for a run that the user has not named; W&B would invent one."""
    return {"name": FinishedRun(folder).label} if _of_wandb(node) and not node.get("name") else {}


@contextmanager
def refusals_explained() -> Iterator[None]:
    """Turns W&B's errors into one line that suggests continuing offline."""
    try:
        yield
    except (wandb.errors.Error, ValueError) as error:  # ValueError: a setting that W&B cannot read
        wandb.teardown()  # it would otherwise keep the refused mode, whatever the next job asks for
        reason = one_line(error).split(" Consider ")[0]
        raise UserError(
            f"W&B does not work online ({reason}): log in with `wandb login`, or write offline "
            "with WANDB_MODE=offline (`wandb sync` uploads it later), or leave W&B out with "
            "logger=none"
        ) from error
