"""Experiment loggers: checks access to W&B, and writes a run's results to it."""

from __future__ import annotations

import io
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    """The primary metrics of a detection table, each under one key, and those of no detector.

    Of a detector in this order, each group only where no more than :data:`MOST_KEYS` result:
    ``mean/<detector>/<metric>`` and ``<detector>/dad``; for each metric
    ``level/<axis>/<level>/<detector>/<metric>``, the mean over the sets with levels; for each
    metric ``<detector>/<set>/<metric>``.
    """
    view, rows = RunView(results), whole(results)
    of_none = rows[rows["detector"].isna()]
    values = dict(zip(of_none["metric"], of_none["value"].astype(float), strict=True))
    for name in view.detectors:
        own, all_own = (table[table["detector"] == name] for table in (rows, results))
        means = {f"mean/{name}/{m}": view.mean(m, name).value for m in view.headlines}
        groups = [means | {f"{name}/dad": view.get("dad", name).value}]
        for metric in view.headlines:
            of_metric, keys = all_own[all_own["metric"] == metric], {}
            for axis, other in (LEVELS, LEVELS[::-1]):
                of_axis = of_metric[of_metric[axis].notna() & of_metric[other].isna()]
                place = f"level/{axis.removesuffix('_level')}"
                for level, value in of_axis.groupby(axis)["value"].mean().items():
                    keys[f"{place}/{level:g}/{name}/{metric}"] = float(value)
            groups.append(keys)
        for metric in view.headlines:
            of_sets = own[own["metric"] == metric].dropna(subset="dataset")
            names = f"{name}/" + of_sets["dataset"].astype(str) + f"/{metric}"
            groups.append(dict(zip(names, of_sets["value"].astype(float), strict=True)))
        kept: dict[str, float] = {}
        for group in groups:
            known = {key: value for key, value in group.items() if not math.isnan(value)}
            if len(kept | known) <= MOST_KEYS:
                kept |= known
        values |= kept
    return values


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
    is only in the table.
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
    plain = results.astype(object).where(results.notna(), None)  # W&B knows no pd.NA
    for tracker in trackers:
        tracker.summary.update(values)
        tracker.log({"results": table_of(plain), **_pages(run.folder)})


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
    shown: dict[str, Any] = {f"figures/{path.stem}": wandb.Image(str(path)) for path in figures}
    for page in sorted(folder.glob("*.html")):
        shown[page.stem] = wandb.Html(str(page), inject=False)
    return shown


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
