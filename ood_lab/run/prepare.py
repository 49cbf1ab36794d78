"""From a composed configuration to a job that has not begun: nothing is written yet."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    InterpolationResolutionError,
    InterpolationToMissingValueError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)

from ood_lab.errors import UserError
from ood_lab.run import checkpoints, debug, nodes
from ood_lab.run.compose import trains
from ood_lab.run.folder import RunFolder
from ood_lab.run.identity import config_hash, unread, used
from ood_lab.run.recipe import recipe_of
from ood_lab.run.workspace import Workspace


def prepare(cfg: DictConfig, overrides: Sequence[str]) -> Workspace:
    """The job of a configuration, with its run folder ``<outputs>/<name>/<hash>/seed=<s>``.

    Args:
        cfg: as Hydra composed it.
        overrides: of the command line; they win over what is taken over from ``ckpt``.

    Raises:
        UserError: a mandatory value is missing, an interpolation fails, ``ckpt`` is not there.
    """
    if "stages" in cfg:
        raise UserError("this experiment has stages: give it alone, without a sweep over others")
    cfg = checkpoints.inherit(cfg, list(overrides))
    if cfg.debug:
        cfg = debug.shortened(cfg)
    settings = _resolved(cfg)
    nodes.check_finite(settings)
    if not isinstance(settings["seed"], int) or not 0 <= settings["seed"] < 2**32:
        raise UserError(f"seed={settings['seed']}: give a whole number from 0 to {2**32 - 1}")
    check_name(str(cfg.name))
    ignored = frozenset() if trains(cfg) else unread(used(settings["task"]))
    told = {key: value for key, value in _of_any_seed(cfg, settings).items() if key not in ignored}
    if "ckpt" in told:
        told["ckpt"] = checkpoints.origin(cfg.ckpt, int(cfg.seed))
    path = Path(cfg.paths.outputs) / str(cfg.name) / config_hash(told) / f"seed={cfg.seed}"
    if cfg.debug:
        debug.keep_apart(cfg, path)
    recipe = recipe_of(cfg, overrides)
    if ignored:
        cfg = OmegaConf.create({k: v for k, v in _resolved(cfg).items() if k not in ignored})
    return Workspace(cfg, RunFolder(path), recipe)


def _of_any_seed(cfg: DictConfig, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with 0 where a value names the seed, so that all seeds share their hash."""
    if cfg.seed == 0:
        return settings
    return _resolved(OmegaConf.merge(cfg, {"seed": 0}))  # type: ignore[arg-type]


def check_name(name: str) -> None:
    """Raises :class:`UserError` for a name that would lead out of the folder of all runs."""
    path = Path(name)
    if not path.parts or path.is_absolute() or ".." in path.parts:
        raise UserError(f"name='{name}' is not a directory below paths.outputs: give a plain name")
    if not name.isprintable():
        raise UserError(
            f"name={name!r} contains characters that cannot be printed: give a plain name"
        )


def _resolved(cfg: DictConfig) -> dict[str, Any]:
    try:
        settings = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        raise UserError(f"give a value to {error.full_key}=...") from error
    except InterpolationToMissingValueError as error:
        found = re.search(r"Missing mandatory value: (\S+)", str(error))
        raise UserError(f"give a value to {found[1] if found else error}=...") from error
    except InterpolationResolutionError as error:
        text = str(error).splitlines()[0]
        text = re.sub(r"^\w+ raised while resolving interpolation: ", "", text).strip('"')
        raise UserError(f"{error.full_key}: {text}" if error.full_key else text) from error
    except OmegaConfBaseException as error:
        raise UserError(str(error).splitlines()[0]) from error
    assert isinstance(settings, dict)
    return {str(key): value for key, value in settings.items()}
