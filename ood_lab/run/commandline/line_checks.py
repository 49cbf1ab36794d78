"""Checks of a command line, before anything long starts: every mistake is one error with a hint."""

from __future__ import annotations

import os
import re
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from ood_lab.common.credentials import check_secret
from ood_lab.common.english import listed
from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.grouping import distinct, grouped
from ood_lab.common.hints import missing_path
from ood_lab.common.hints import nearest as nearest_names
from ood_lab.run.commandline.composition import composed, leaves, target_name
from ood_lab.run.commandline.overrides import (
    OF_SETS,
    OPEN_KEYS,
    SYNONYMS,
    options_of,
    parsed,
    values_of,
)
from ood_lab.scripts import CONF, OWN_CONF, conf_files, is_group

#: Most options that a message lists.
_SHOWN = 60
#: Most characters of the name of a set of images.
_LONGEST = 100


def read_arguments(arguments: Sequence[str]) -> Namespace:
    """Reads Hydra's flags and ``overrides``; notes where the user's own YAML files are.

    Raises:
        UserError: a flag is unknown or lacks its value, an argument is not ``key=value`` in Hydra's
            grammar, it holds a secret, or there is no folder ``--config-dir``.
    """

    def refuse(message: str) -> NoReturn:
        raise UserError(f"{message}. Settings are written key=value, without dashes before them")

    parser = get_args_parser()
    parser.error = refuse  # type: ignore[method-assign]
    # Flags may stand anywhere between the overrides.
    flags: Namespace = parser.parse_intermixed_args(list(arguments))
    if flags.config_dir:
        if not Path(flags.config_dir).is_dir():
            raise missing_path(flags.config_dir)
        os.environ[OWN_CONF] = os.path.abspath(flags.config_dir)
    for override in flags.overrides:
        key, equals, _ = override.partition("=")
        _check_set_name(key.lstrip("+~"))
        if not equals and key[0] != "~":
            refuse(f"'{override}' has no value")
        try:
            readable = key and parsed(f"{key}=1" if equals else override)
        except HydraException:
            readable = None
        if not readable:
            refuse(f"'{key}' in '{override}' is not a key of the configuration")
        _check_value(override)
    return flags


def _check_set_name(key: str) -> None:
    """Raises :class:`UserError` if a key names a set of images in a way that Hydra cannot read."""
    beginning = next((start for start in OF_SETS if key.startswith(start)), None)
    if beginning is None:
        return
    name, _, inside = key.removeprefix(beginning).partition(".")
    name = name if inside in ("", "path", "root") else f"{name}.{inside}"
    word = name.replace("-", "_").isidentifier() or (name.isdigit() and name == str(int(name)))
    if not (word and name.isascii() and len(name) <= _LONGEST):
        advised = re.sub(r"[^\w-]+", "_", name[: _LONGEST - 4], flags=re.ASCII)
        raise UserError(
            f"{key}: '{name}' cannot be the name of a set here: use up to {_LONGEST} letters from "
            f"a to z, digits, _ and -, and begin with a letter, as in {beginning}set_{advised}"
        )


def _check_value(override: str) -> None:
    """Checks a value on its own: it can be read, lists its options and holds no secret."""
    with reported_as(
        f"cannot read '{override}': brackets and quotation marks do not match; a text that holds "
        "them is written in quotes that reach the program, as in \"name='it\\'s'\"",
        HydraException,
    ):
        sweeps = parsed(override).is_sweep_override()
    with reported_as(f"cannot sweep over '{override}': {{reason}}", HydraException):
        values = values_of(override)
    if sweeps and not values:
        raise UserError(f"'{override}' is an empty sweep: give at least one value")
    for value in values:
        for name, leaf in leaves({parsed(override).key_or_group: value}):
            check_secret(str(name), leaf)


def check_line(script: str, overrides: Sequence[str], sweep: bool = True) -> DictConfig:
    """Composes the first job of a line, then one for every other choice that it sweeps over.

    Returns:
        The configuration of the first job, to which :class:`HydraConfig` belongs.

    Raises:
        UserError: an override names an unknown key or an unknown choice, and the message suggests
            the nearest valid one; the choices do not go together; or a key has several values
            without ``sweep``.
    """
    options = [options_of(override) for override in overrides]
    for override in overrides:
        if parsed(override).is_sweep_override() and not sweep:
            key, _, value = override.partition("=")
            raise UserError(
                f"{key} has several values: add -m to run each of them, write {key}=[{value}] if "
                f"they are one list, or \"{key}='{value}'\" if they are one text"
            )
    first = [values[0] for values in options]
    cfg = _checked(script, first)
    hydra = HydraConfig.instance().cfg
    for place, values in enumerate(options):
        for other in values[1:] if _is_choice(parsed(first[place])) else ():
            _checked(script, [*first[:place], other, *first[place + 1 :]])
    HydraConfig.instance().cfg = hydra
    return cfg


def _checked(script: str, line: Sequence[str]) -> DictConfig:
    """The configuration of one job; where it does not compose, the mistake is looked for."""
    for part in map(parsed, line):
        if _is_choice(part):
            _check_choice(part)
            continue
        added = part.is_add() or part.is_force_add()
        if part.is_delete() or (added and "." not in part.key_or_group):
            _check_keys(script, line)  # Hydra removes and adds whatever it is given
            break
    try:
        return composed(script, line)
    except Exception as error:  # whatever Hydra and OmegaConf say of values
        _check_keys(script, line)
        raise UserError(_first_line(error)) from error


def _check_keys(script: str, line: Sequence[str]) -> None:
    """Checks the keys of one job in what its choices compose to."""
    choices = [override for override in line if _is_choice(parsed(override))]
    try:
        cfg = composed(script, choices)
    except Exception as error:
        raise UserError(_first_line(error)) from error
    for override in line:
        if override not in choices:
            _check_key(parsed(override), cfg)


def _is_choice(override: Override) -> bool:
    """True if it chooses files of a group (``data=folder``) rather than setting a key."""
    return is_group(override.key_or_group)


def _check_choice(override: Override) -> None:
    """Raises :class:`UserError` unless it names files of the group."""
    group = override.key_or_group
    if override.is_delete():
        raise UserError(f"~{group}: a group cannot be left out; choose another file of it")
    options = [path.stem for path in conf_files(group)]
    if not options:
        inner = sorted(f"{group}/{path.name}" for path in (CONF / group).iterdir())
        raise UserError(f"'{group}' has no choices of its own, {listed(inner)} have")
    value = override.value()
    choices = [*map(str, value if isinstance(value, list) else [value])]
    for choice in choices:
        if choices.count(choice) > 1:
            raise UserError(f"{group} names {choice} twice: leave one of them out")
        if choice not in options:
            raise UserError(f"{group}={choice} is unknown. {nearest(choice, options)}")


def _check_key(override: Override, cfg: DictConfig) -> None:
    """Raises :class:`UserError` where nothing reads the key, or it cannot be left out."""
    key = override.key_or_group
    # Below a node from which an object is built, its class decides what it takes.
    added = "." in key and (override.is_add() or override.is_force_add())
    if not (added or override.is_hydra_override() or has(cfg, key)):
        raise UserError(f"unknown key '{key}'. {advice(key, cfg)}")
    if not override.is_delete():
        return
    # It has a default in its class, or is one of several objects.
    parent, leaf = _parent_of(cfg, key), _leaf(key)
    objects = all(isinstance(parent._get_node(name), DictConfig) for name in parent)
    if leaf.startswith("_") or not (target_name(parent) or objects):
        raise UserError(f"~{key}: this setting is needed; give it another value instead")


def _first_line(error: BaseException) -> str:
    """First line of an error from Hydra or OmegaConf, without the context below it."""
    return str(error.__cause__ or error).strip().split("\n")[0]


# Suggestions for a mistyped key or choice.


def advice(key: str, cfg: DictConfig) -> str:
    """Suggests what a key that is not in the chosen configuration may have meant."""
    if elsewhere := _choices_with(key):
        general = [e for e in elsewhere if e.endswith("=folder")]  # the one for the user's own data
        named = " and ".join((general or elsewhere)[:3])
        return f"It belongs to {named}, which this line does not choose."
    if near := _near_keys(key, all_keys(cfg)):
        return f"Did you mean {' or '.join(near)}?"
    parent, node = key.rpartition(".")[0], _parent_of(cfg, key)
    prefix, node = (f"{parent}.", node) if parent and isinstance(node, DictConfig) else ("", cfg)
    return nearest(key, [f"{prefix}{name}" for name in map(str, node)])


def nearest(word: str, options: Sequence[str]) -> str:
    """``Did you mean ...?`` for the options that are close to ``word``, or else the valid ones."""
    if close := nearest_names(word, options):
        return f"Did you mean {' or '.join(close)}?"
    shown, more = sorted(options), ""
    if len(shown) > _SHOWN:
        shown, more = shown[:_SHOWN], f", ... ({len(shown)} in all)"
    return f"Valid: {', '.join(shown)}{more}."


def has(cfg: Any, key: str) -> bool:
    """True if a configuration has this dotted key, even with its value still missing (``???``)."""
    parent = _parent_of(cfg, key)
    return isinstance(parent, DictConfig) and _leaf(key) in parent.keys()  # noqa: SIM118


def takes(cfg: Any, key: str) -> bool:
    """True if it has the key, or the mapping in which users invent it (``data.ood.NAME``)."""
    mappings = [start.rstrip(".") for start in OPEN_KEYS if key.startswith(start)]
    return any(has(cfg, name) for name in (key, *mappings))


def all_keys(cfg: DictConfig, prefix: str = "") -> list[str]:
    """All dotted keys of a configuration, parents before children."""
    keys = []
    for key in map(str, cfg):
        keys.append(prefix + key)
        node = cfg._get_node(key)
        if isinstance(node, DictConfig) and not node._is_none() and not node._is_interpolation():
            keys += all_keys(node, f"{prefix}{key}.")
    return keys


def _parent_of(cfg: Any, key: str) -> Any:
    """The node that would contain a dotted key; None if there is none."""
    parent = key.rpartition(".")[0]
    return OmegaConf.select(cfg, parent, throw_on_resolution_failure=False) if parent else cfg


def _near_keys(key: str, keys: Sequence[str]) -> list[str]:
    """Up to three keys with the same name, with a similar name, or similar as a whole."""
    parent, leaf = key.rpartition(".")[0], _leaf(key)
    leaf = SYNONYMS.get(leaf, leaf)
    by_leaf = grouped((_leaf(k), k) for k in keys)
    # A word of a longer name matches as well: epochs, in max_epochs.
    longer = sorted(name for name in by_leaf if leaf in name.split("_"))
    names = distinct([*nearest_names(leaf, by_leaf, 0.6), *longer])
    same, similar = by_leaf.get(leaf, []), [k for name in names for k in by_leaf[name]]
    if not parent:
        return _highest(same or similar)
    inside = [k for k in similar if k.rpartition(".")[0] == parent]
    return distinct([*inside, *nearest_names(key, keys, 0.6), *_highest(same)])[:3]


def _highest(keys: Sequence[str]) -> list[str]:
    """Those with the fewest dots, at most three."""
    least = min((k.count(".") for k in keys), default=0)
    return [k for k in keys if k.count(".") == least][:3]


def _leaf(key: str) -> str:
    return key.rpartition(".")[2]


def _choices_with(key: str) -> list[str]:
    """``group=choice`` of the files that contain a key, whose first part is the group."""
    group, _, rest = key.partition(".")
    nodes = [(path.stem, OmegaConf.load(path)) for path in (conf_files(group) if rest else ())]
    # The second in files of the whole configuration.
    return [f"{group}={name}" for name, node in nodes if has(node, rest) or has(node, key)]
