"""Configurations that Hydra composes for command lines."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from ood_lab.run.commandline.overrides import options_of, parsed, quote
from ood_lab.scripts import CONF, conf_folders


def composed(script: str, overrides: Sequence[str]) -> DictConfig:
    """The configuration of one job, as Hydra would hand it to ``train`` or ``eval``.

    Sets :class:`HydraConfig`, from which the job learns its command line.

    Raises:
        HydraException: an override is not in Hydra's grammar, or does not go with the others.
    """
    folders = [quote(f"file://{folder}") for folder in conf_folders()[1:]]
    search = [f"hydra.searchpath=[{','.join(folders)}]"] if folders else []
    state = GlobalHydra.instance()
    running = state.hydra
    state.clear()
    try:
        with initialize_config_dir(str(CONF), job_name=script, version_base="1.3"):
            cfg = compose(script, [*overrides, *search], return_hydra_config=True)
    finally:
        state.hydra = running
    cfg.hydra.mode = cfg.hydra.mode or RunMode.RUN
    HydraConfig.instance().cfg = OmegaConf.masked_copy(cfg, "hydra")  # type: ignore[assignment]
    with open_dict(cfg):
        del cfg["hydra"]
    return cfg


def composed_again(overrides: Sequence[str]) -> DictConfig:
    """The configuration that the running job would have with other overrides.

    :class:`HydraConfig` stays unchanged.

    Raises:
        HydraException: see :func:`composed`.
    """
    running = HydraConfig.instance().cfg
    try:
        return composed(str(HydraConfig.get().job.config_name), overrides)
    finally:
        HydraConfig.instance().cfg = running


def is_default(group: str) -> bool:
    """Whether the running job has the choice of a group that it has without any override."""
    defaults = OmegaConf.load(CONF / "base.yaml").defaults
    (choice,) = (node[group] for node in defaults if group in node)
    return bool(choice == HydraConfig.get().runtime.choices[group])


def jobs_of(overrides: Sequence[str]) -> list[list[str]]:
    """The command line of every job of a sweep, in Hydra's order (the last key runs fastest)."""
    options = [options_of(o) for o in overrides if not parsed(o).is_hydra_override()]
    return [list(line) for line in itertools.product(*options)]


def plain(cfg: DictConfig, whole: bool = False) -> dict[str, Any]:
    """The resolved configuration as plain Python; a ``whole`` one must have no missing values."""
    return cast(dict[str, Any], OmegaConf.to_container(cfg, resolve=True, throw_on_missing=whole))


def leaves(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """``(dotted key, value)`` for every leaf of nested settings."""
    parts = node.items() if isinstance(node, Mapping) else enumerate(node)
    for key, value in parts:
        if isinstance(value, (Mapping, list)) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def target_name(node: Any) -> Any:
    """What Hydra builds of a node (its ``_target_``); None where the node is no object to build."""
    return node.get("_target_") if isinstance(node, Mapping) else None


def trains(cfg: DictConfig) -> bool:
    """True if train.py fits the model on the data; otherwise the task does its own training."""
    # Not the job's name: in the other processes of a DDP job, Lightning gives it another one.
    of_train = HydraConfig.get().job.config_name == "train"
    return of_train and OmegaConf.select(cfg, "model.classifier") is not None


def running_overrides() -> list[str]:
    """The command line of the running job, with each ``${...}`` as it was typed."""
    typed = HydraConfig.get().overrides.task
    return cast(list[str], OmegaConf.to_container(typed, resolve=False))
