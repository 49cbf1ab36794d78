"""The experiment loggers of a job; whether W&B can be written to online, before the work begins."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from typing import TYPE_CHECKING, Any

import wandb
from omegaconf import DictConfig

from ood_lab.errors import UserError
from ood_lab.run import nodes
from ood_lab.run.compose import plain
from ood_lab.run.folder import RunFolder
from ood_lab.run.terminal import one_line

if TYPE_CHECKING:
    from lightning.pytorch.loggers import Logger


def check_login(loggers: Mapping[str, Mapping[str, Any]]) -> None:
    """Looks for the API key where a W&B logger is meant to write online.

    Raises:
        UserError: there is no key, or one of the wrong form.
    """
    nodes = [node for node in loggers.values() if _of_wandb(node)]
    online = os.environ.get("WANDB_MODE", "online") == "online"
    if online and any(not node.get("offline") for node in nodes):
        with _refusals_explained():
            wandb.login()


def make_loggers(cfg: DictConfig, run: RunFolder) -> list[Logger]:
    """The loggers of the ``logger`` node, which have been told the settings of the run."""
    settings = plain(cfg)
    # Lightning passes W&B an option that W&B warns of.
    with _refusals_explained(), redirect_stderr(io.StringIO()):
        loggers = [
            nodes.build(cfg, f"logger.{key}", save_dir=str(run.path), **_named(run, node))
            for key, node in settings["logger"].items()
        ]
        for logger in loggers:
            logger.log_hyperparams(settings)
    return loggers


def _of_wandb(node: Mapping[str, Any]) -> bool:
    return str(node.get("_target_", "")).endswith("WandbLogger")


def _named(run: RunFolder, node: Mapping[str, Any]) -> dict[str, str]:
    """The name that W&B shows for a run which the user gives none; W&B would invent one."""
    return {"name": run.label} if _of_wandb(node) and not node.get("name") else {}


@contextmanager
def _refusals_explained() -> Iterator[None]:
    """Turns what W&B raises into one line that offers to go on offline."""
    try:
        yield
    except (wandb.errors.Error, ValueError) as error:  # ValueError: a setting that W&B cannot read
        wandb.teardown()  # it would keep to the refused mode, whatever the next job asks for
        reason = one_line(error).split(" Consider ")[0]
        raise UserError(
            f"W&B does not work online ({reason}): log in with `wandb login`, or write offline "
            "with WANDB_MODE=offline (`wandb sync` uploads it later), or leave W&B out with "
            "logger=none"
        ) from error
