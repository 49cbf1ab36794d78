"""Turns a composed configuration into a job that has not started; nothing is written yet."""

from __future__ import annotations

import glob
import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import (
    InterpolationResolutionError,
    InterpolationToMissingValueError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)

from ood_lab.common.arguments import Settings
from ood_lab.common.credentials import check_secret
from ood_lab.common.errors import UserError
from ood_lab.common.grouping import without_keys
from ood_lab.common.hints import missing_path
from ood_lab.run.building import checkpoints, nodes
from ood_lab.run.building.synthetic_datasets import graded_of
from ood_lab.run.commandline.composition import composed, composed_again, leaves, plain
from ood_lab.run.commandline.overrides import key_of
from ood_lab.run.job.run_directory import RunFolder
from ood_lab.run.job.run_identity import config_hash
from ood_lab.run.job.workspace import Workspace, ignored_by
from ood_lab.scripts import CONF

log = logging.getLogger(__name__)
#: Batches of every set in a debug run.
DEBUG_BATCHES = 2
#: Folder of debug runs, below ``paths.outputs``.
DEBUG_FOLDER = "debug"
#: Groups of sources of ``data=folder``. ``csid`` is read for the full spectrum alone.
_SOURCES = ("id", "ood", "ood_val", "csid")
#: Choices of ``detector`` to which that of a training objective belongs.
_SETS = ("default", "all")
#: Tar shards named by a pattern, which is matched where they are read.
_SHARDS = re.compile(r".*[{*?\[].*\.tar")


def prepare(cfg: DictConfig, overrides: Sequence[str]) -> Workspace:
    """The job of a configuration, with its run folder ``<outputs>/<name>/<hash>/seed=<s>``.

    The overrides of the command line win over what is taken over from ``ckpt``.

    Raises:
        UserError: a mandatory value is missing, an interpolation fails, or ``ckpt`` does not exist.
    """
    if "stages" in cfg:
        raise UserError("this experiment has stages: run it by itself, without a sweep over others")
    with values_explained():
        cfg, overrides = _with_its_own_name(cfg, list(overrides))
        cfg = _with_own_score(checkpoints.inherit(cfg, overrides))
    if cfg.debug:
        cfg = _shortened(cfg)
    settings = _resolved(cfg)
    nodes.check_finite(settings)
    for key, value in leaves(settings):
        check_secret(key, value)
    if not isinstance(settings["seed"], int) or not 0 <= settings["seed"] < 2**32:
        raise UserError(f"seed={settings['seed']}: give a whole number from 0 to {2**32 - 1}")
    _check_name(str(cfg.name))
    ignored = ignored_by(cfg)
    # With 0 wherever a value names the seed: all seeds share a hash.
    of_any_seed = OmegaConf.merge(cfg, {"seed": 0})
    told = without_keys(_resolved(of_any_seed), ignored)  # type: ignore[arg-type]
    if "synthetic_ood" not in ignored and (synthetic_ood := graded_of(settings)) is not None:
        told["synthetic_ood"] = plain(
            synthetic_ood
        )  # the same run as with this choice on the command line
    if "ckpt" in told:
        told["ckpt"] = checkpoints.origin(cfg.ckpt, int(cfg.seed))
    path = Path(cfg.paths.outputs) / str(cfg.name) / config_hash(told) / f"seed={cfg.seed}"
    if cfg.debug:
        # Feature banks and the cache lie in the run folder, so nothing is reused or left behind.
        cfg.paths.features, cfg.paths.cache = str(path / "features"), str(path / "cache")
        cfg.paths.weights = str(path / "weights")
    recipe = recipe_of(cfg, overrides)
    unused = ignored - _referred_to(cfg, ignored)
    if ignored:
        cfg = OmegaConf.create(without_keys(_resolved(cfg), ignored))
    return Workspace(cfg, RunFolder(path), recipe, unused)


def _with_own_score(cfg: DictConfig) -> DictConfig:
    """Adds the detector that reads what the training loss adds, unless detectors are chosen."""
    if not cfg.get("loss") or HydraConfig.get().runtime.choices.get("detector") not in _SETS:
        return cfg
    name = nodes.own_score(cfg)
    if name and name not in (cfg.get("detector") or {}):
        cfg = cfg.copy()
        with open_dict(cfg):
            cfg.detector[name] = OmegaConf.load(CONF / "detector" / f"{name}.yaml").detector[name]
    return cfg


def folder_of(script: str, overrides: Sequence[str]) -> Path:
    """The run folder of a job; of one that cannot start, a folder that holds no run."""
    try:
        return prepare(composed(script, overrides), overrides).folder
    except UserError:
        return Path()


def _referred_to(cfg: DictConfig, groups: Collection[str]) -> set[str]:
    """The groups from which settings outside of them take values, as in ``${clip}``."""
    rest = OmegaConf.masked_copy(cfg, [str(key) for key in cfg if str(key) not in groups])
    text = OmegaConf.to_yaml(rest)
    return {group for group in groups if re.search(rf"\$\{{{re.escape(group)}[.}}]", text)}


def _shortened(cfg: DictConfig) -> DictConfig:
    """The configuration of a debug run: two batches of every set, one epoch, a log on disk.

    Its folder is kept apart from real runs, is emptied at every start and never gets a ``DONE``.
    """
    cfg = cfg.copy()
    with open_dict(cfg):
        cfg.paths.outputs = str(Path(cfg.paths.outputs) / DEBUG_FOLDER)
        cfg.force = True
        cfg.logger = OmegaConf.load(CONF / "logger" / "csv.yaml")
        cfg.trainer.max_epochs = 1
        cfg.data.max_batches = DEBUG_BATCHES
        if "identify" in cfg.data:
            cfg.data.identify = "stat"  # reading all files takes longer than the rest
    return cfg


def _check_name(name: str) -> None:
    """Raises :class:`UserError` for a name that would lead outside the folder of all runs."""
    path = Path(name)
    inside = path.parts and not path.is_absolute() and ".." not in path.parts
    if not (inside and name.isprintable()):
        raise UserError(f"name={name!r} is not a directory below paths.outputs: give a plain name")


def recipe_of(cfg: DictConfig, overrides: Sequence[str]) -> str | None:
    """The file, described in words, that defines what a run's preset means for its method.

    The defaults list of ``conf/base.yaml`` adds ``recipe/<group>/<method>_<preset>.yaml`` where
    there is such a file. Where there is none, the method's own file holds all settings. None for
    an evaluation of a method without one. ``cfg`` includes what is taken over from ``ckpt``.
    """
    keys = set(map(key_of, overrides))
    if cfg.ckpt and checkpoints.run_of(Path(cfg.ckpt)) and "model" not in keys:
        return f"that of {cfg.ckpt}"
    hydra = HydraConfig.get()
    group = "prompt" if hydra.runtime.choices.get("prompt") else "model"
    method = hydra.runtime.choices.get(group)
    named = [f"{method}_{path.stem}" for path in (CONF / "preset").glob("*.yaml")]
    files = [name for name in named if (CONF / "recipe" / group / f"{name}.yaml").exists()]
    if not files and hydra.job.config_name != "train":
        return None
    own = f"{method}_{cfg.preset}"
    taken = f"recipe/{group}/{own}.yaml" if own in files else f"{group}/{method}.yaml unchanged"
    return f"conf/{taken} (preset={cfg.preset})"


def _resolved(cfg: DictConfig) -> Settings:
    with values_explained():
        return plain(cfg, whole=True)


def _with_its_own_name(cfg: DictConfig, overrides: list[str]) -> tuple[DictConfig, list[str]]:
    """A network with a fixed name keeps it, as in ``-m model=resnet10s,timm model.name=resnet18``.

    ``model.name`` chooses a network of a library, and labels one of the user's own.
    """
    kept = [override for override in overrides if key_of(override) != "model.name"]
    of_run = cfg.get("ckpt") and "model" not in map(key_of, overrides)
    if len(kept) == len(overrides) or of_run or cfg.model.get("net"):
        return cfg, overrides
    # What an experiment has chosen from a library is no fixed name.
    if "backbone" in cfg.model and OmegaConf.is_interpolation(cfg.model.backbone, "name"):
        return cfg, overrides
    own = composed_again(kept)
    if own.model.name != cfg.model.name:
        log.warning(
            "model.name=%s changes nothing: the model is %s", cfg.model.name, own.model.name
        )
    return own, kept


@contextmanager
def values_explained() -> Iterator[None]:
    """Reports a value that is missing or cannot be resolved as a user error."""
    try:
        yield
    except MissingMandatoryValue as error:
        raise UserError(f"give a value to {error.full_key}=...") from error
    except InterpolationToMissingValueError as error:
        key = re.search(r"Missing mandatory value: (\S+)", str(error))
        raise UserError(f"give a value to {key[1] if key else error}=...") from error
    except InterpolationResolutionError as error:
        text = str(error).splitlines()[0]
        text = re.sub(r"^\w+ raised while resolving interpolation: ", "", text).strip('"')
        raise UserError(f"{error.full_key}: {text}" if error.full_key else text) from error
    except OmegaConfBaseException as error:
        raise UserError(str(error).splitlines()[0]) from error


def check_places(ws: Workspace) -> None:
    """Checks that the weights, the sources of the user's data and the images to predict exist.

    This comes before packages are loaded, which takes seconds. Tasks that report missing data
    themselves, as a check of the data does, are exempt.

    Raises:
        UserError: a file or folder does not exist, or no weights are named.
    """
    for source in _sources(ws):
        # A source may also name the root that its paths are relative to.
        place = source.get("path") if isinstance(source, Mapping) else source
        if not isinstance(place, str) or _SHARDS.fullmatch(place):
            continue
        if not Path(place).expanduser().exists():
            raise missing_path(place)
    if not ws.trains and "backbone" in ws.uses:
        checkpoints.check_weights(ws.cfg)


def _sources(ws: Workspace) -> list[Any]:
    """The images to predict, and the sources of the data; not those that this job does not read."""
    task = ws.settings["task"]
    images = task.get("images")
    # A pattern is matched where the images are read.
    places = images if isinstance(images, list) else [images]
    sources = [place for place in places if not glob.has_magic(str(place))]
    # Saved detectors need no data.
    passes = {"data", "extractor"} <= ws.uses and not task.get("detector_file")
    data = ws.settings["data"] if ws.trains or passes else {}
    sources.append(data.get("outliers"))
    if "id" in data:  # not data whose sources lie under a root of their own
        groups = [group for group in _SOURCES if group != "csid" or data.get("full_spectrum")]
        sources += [source for group in groups for source in (data.get(group) or {}).values()]
        sources.append(data.get("hierarchy"))
    return sources
