"""Composed configurations of command lines; whatever several lines share is composed once."""

from __future__ import annotations

import itertools
import os
import pickle
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from ood_lab.run.commandline.hydra_internals import apply
from ood_lab.run.commandline.override_values import quote, values_of
from ood_lab.scripts import CONF, command, conf_folders, is_group


def parsed(overrides: Sequence[str]) -> list[Override]:
    """The overrides as Hydra reads them.

    Raises:
        HydraException: one of them is not in Hydra's grammar.
    """
    return [_parsed(override) for override in overrides]


@lru_cache(maxsize=4096)  # checks read the same words again and again
def _parsed(override: str) -> Override:
    (found,) = OverridesParser.create().parse_overrides([override])
    return found


def is_choice(override: Override) -> bool:
    """True if it chooses files of a group (``data=folder``) rather than setting a key."""
    key = override.key_or_group
    return is_group(key) or key.split(".")[0].split("/")[0] == "hydra"


def chosen(script: str, choices: Sequence[str]) -> DictConfig:
    """The configuration of ``train`` or ``eval`` with these choices of files.

    Sets :class:`HydraConfig`, which some values of the configuration refer to.

    Raises:
        HydraException: a choice does not exist.
    """
    cfg, hydra = pickle.loads(_chosen(script, (*choices, *_search_path())))
    HydraConfig.instance().cfg = hydra
    return cfg


def _search_path() -> list[str]:
    """The override that makes Hydra search the user's own folder as well."""
    own = [quote(f"file://{folder}") for folder in conf_folders()[1:]]
    return [f"hydra.searchpath=[{','.join(own)}]"] if own else []


@lru_cache(maxsize=1024)
def _chosen(script: str, choices: tuple[str, ...]) -> bytes:
    """A job's configuration and Hydra's, pickled: read in a sixth of the time of a deep copy."""
    GlobalHydra.instance().clear()
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        cfg = compose(script, list(choices), return_hydra_config=True)
    cfg.hydra.job.name = script
    cfg.hydra.mode = cfg.hydra.mode or RunMode.RUN
    hydra = OmegaConf.masked_copy(cfg, "hydra")
    with open_dict(cfg):
        del cfg["hydra"]
    return pickle.dumps((cfg, hydra))


def is_default(group: str) -> bool:
    """Whether the running job has the choice of a group that it has without any override."""
    job = HydraConfig.get()
    _, hydra = pickle.loads(_chosen(str(job.job.config_name), tuple(_search_path())))
    return bool(hydra.hydra.runtime.choices[group] == job.runtime.choices[group])


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


def running_overrides() -> list[str]:
    """The command line of the running job, with each ``${...}`` as it was typed."""
    typed = HydraConfig.get().overrides.task
    return cast(list[str], OmegaConf.to_container(typed, resolve=False))


#: A run as the line's checks have quoted it, for the = in its name.
_QUOTED_RUN = re.compile(r"^ckpt='([^']*)'$")


def shell_word(word: str) -> str:
    """Quotes a word for a shell; in double quotes if it holds single ones, as Hydra's lists do."""
    safe = shlex.quote(word)
    return f'"{word}"' if "'" in word and not set(word) & set('"$`\\!') else safe


def as_typed(override: str) -> str:
    """An override for a shell; a run without the quotes that the line's checks give its ``=``."""
    return shell_word(_QUOTED_RUN.sub(r"ckpt=\1", override))


def command_to_repeat() -> str:
    """The command that repeats the running job; it omits output paths and loggers."""
    places = ("paths.", "logger=", "task.export=")
    kept = [override for override in running_overrides() if not override.startswith(places)]
    return command_line(str(HydraConfig.get().job.config_name), kept)


def command_line(script: str, overrides: Sequence[str]) -> str:
    """What a user types for one job of ``train`` or ``eval``, with the folder of own YAML files."""
    own = conf_folders()[1:]
    flags = [word for folder in own for word in ("--config-dir", shell_word(str(folder)))]
    return " ".join([command(script), *flags, *map(as_typed, overrides)])


def trains(cfg: DictConfig) -> bool:
    """True if train.py fits the model on the data; otherwise the task does its own training."""
    # Not the job's name: in the other processes of a DDP job, Lightning gives it another one.
    of_train = HydraConfig.get().job.config_name == "train"
    return of_train and OmegaConf.select(cfg, "model.classifier") is not None


def composed_again(overrides: Sequence[str]) -> DictConfig:
    """The configuration that the running job would have with other overrides.

    :class:`HydraConfig` stays unchanged.

    Raises:
        HydraException: see :func:`composed`.
    """
    hydra, loaded = HydraConfig.instance().cfg, GlobalHydra.instance().hydra
    try:
        return composed(str(HydraConfig.get().job.config_name), overrides)
    finally:
        HydraConfig.instance().cfg, GlobalHydra.instance().hydra = hydra, loaded


def composed(script: str, overrides: Sequence[str]) -> DictConfig:
    """The configuration of one job, as :mod:`hydra` would hand it to that script.

    Sets :class:`HydraConfig`, from which the job learns its command line. Composing the groups
    takes nearly all of the time, and the jobs of a sweep share them.

    Raises:
        HydraException: see :func:`parsed`, :func:`chosen` and
            :func:`~ood_lab.run.commandline.hydra_internals.apply`.
    """
    given = parsed(overrides)
    cfg = chosen(script, [str(o.input_line) for o in given if is_choice(o)])
    apply(cfg, [o for o in given if not is_choice(o)])
    job = HydraConfig.get()
    job.overrides.task, job.runtime.cwd = list(overrides), os.getcwd()
    return cfg


def jobs_of(overrides: Sequence[str]) -> list[list[str]]:
    """The command line of every job of a sweep, in Hydra's order (the last key runs fastest)."""
    own = [override for override in parsed(overrides) if not override.is_hydra_override()]
    options = [values_of(override) for override in own]
    return [list(line) for line in itertools.product(*options)]


def differences(lines: Sequence[Sequence[str]]) -> tuple[list[str], list[str]]:
    """The overrides that all jobs of a sweep share, and as text those that only one of them has."""
    shared = set.intersection(*map(set, lines))
    own = [" ".join(o for o in line if o not in shared) for line in lines]
    return [o for o in lines[0] if o in shared], own
