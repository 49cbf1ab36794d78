"""The goal of a W&B sweep: a validation number, never one of the evaluated datasets."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

import wandb

from ood_lab.common.errors import UserError

log = logging.getLogger(__name__)
#: Beginnings of the names of what a search may optimise.
_ALLOWED = ("val/", "train/")


def check_sweep(config: Mapping[str, Any]) -> None:
    """Checks the configuration of a W&B sweep, as in ``conf/wandb_sweep.yaml``.

    Raises:
        UserError: its goal is measured on evaluated datasets, or it searches the seed.
    """
    goal = (config.get("metric") or {}).get("name")
    if goal and not str(goal).startswith(_ALLOWED):
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
