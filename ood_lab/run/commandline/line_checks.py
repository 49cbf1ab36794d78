"""Checks of a command line; every mistake in it is reported as one error."""

from __future__ import annotations

import itertools
import os
import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig

from ood_lab.common.credentials import check_secret
from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.hints import missing_path
from ood_lab.run.commandline import key_suggestions
from ood_lab.run.commandline.composition import chosen, is_choice, leaves, parsed
from ood_lab.run.commandline.hydra_internals import apply, flag_parser
from ood_lab.run.commandline.override_values import values_of
from ood_lab.scripts import CONF, OWN_CONF, conf_files, is_group

#: Dotted names with an optional sign before and package after, as in ``+group@package``.
_KEY = re.compile(r"(\+\+|\+|~)?[A-Za-z_$][\w$./@:-]*", re.ASCII)

#: Name of a set of images, in a key.
_SET = re.compile(r"[a-z_][\w-]{0,99}|0|[1-9]\d{0,99}", re.ASCII | re.IGNORECASE)
#: Characters of a key: Hydra looks for a folder of that name.
_LONGEST = 200


def read_arguments(arguments: Sequence[str]) -> Namespace:
    """Reads Hydra's flags and ``overrides``; notes where the user's own YAML files are.

    Raises:
        UserError: a flag is unknown or lacks its value, an argument is not ``key=value``, or
            there is no folder ``--config-dir``.
    """

    def refuse(message: str) -> NoReturn:
        raise UserError(f"{message}. Settings are written key=value, without dashes before them")

    parser = flag_parser()
    parser.error = refuse  # type: ignore[method-assign]
    # Flags may stand anywhere between the overrides.
    found: Namespace = parser.parse_intermixed_args(list(arguments))
    if found.config_dir:
        if not Path(found.config_dir).is_dir():
            raise missing_path(found.config_dir)
        os.environ[OWN_CONF] = os.path.abspath(found.config_dir)
    for override in found.overrides:
        key, equals, _ = override.partition("=")
        check_set_name(key.lstrip("+~"))
        if not equals and key[0] != "~":
            refuse(f"'{override}' has no value")
        if len(key) > _LONGEST:
            refuse(f"'{key[:40]}...' has {len(key)} characters and is not a key")
        if not _KEY.fullmatch(key):
            refuse(f"'{key}' in '{override}' is not a key of the configuration")
    return found


def check_set_name(key: str) -> None:
    """Raises :class:`UserError` if a key names a set of images in a way that Hydra cannot read."""
    sets = (*key_suggestions.OF_SETS, "data.ood_groups.")
    beginning = next((start for start in sets if key.startswith(start)), None)
    if beginning is None:
        return
    name, _, inside = key.removeprefix(beginning).partition(".")
    whole = name if inside in ("", "path", "root") else f"{name}.{inside}"
    if not _SET.fullmatch(whole):
        advised = re.sub(r"[^\w-]+", "_", whole[:96], flags=re.ASCII)
        raise UserError(
            f"{key}: '{whole}' cannot be the name of a set here: use up to 100 letters from a to "
            f"z, digits, _ and -, and begin with a letter, as in {beginning}set_{advised}"
        )


def check_overrides(script: str, overrides: Sequence[str], sweep: bool = True) -> None:
    """Composes the configuration once per value; with ``sweep``, a key may have several.

    Raises:
        UserError: an override does not parse, names an unknown key or an unknown choice; the
            message suggests the nearest valid one.
    """
    values = [_options(override, sweep) for override in map(_parsed, overrides)]
    first = [options[0] for options in values]
    _check_line(script, first)
    for position, options in enumerate(values):
        for other in options[1:]:
            _check_line(script, [*first[:position], other, *first[position + 1 :]])


def check_headers(overrides: Sequence[str]) -> None:
    """Looks in the chosen files for a package line that Hydra would silently ignore.

    Raises:
        UserError: ``# @package`` is not the first line, so it would be an ordinary comment.
    """
    for override in map(_parsed, overrides):
        group = override.key_or_group
        if not is_group(group) or override.is_sweep_override():
            continue
        value = override.value()
        names = {str(name) for name in (value if isinstance(value, list) else [value])}
        for file in conf_files(group):
            if file.stem in names and (found := _late_header(file)):
                raise UserError(
                    f"{file}: Hydra reads '{found}' only at the very top: make it the first line"
                )


def _late_header(file: Path) -> str | None:
    lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    of_header = itertools.takewhile(lambda line: not line or re.match(r"#\s*@", line), lines)
    rest = lines[len(list(of_header)) :]
    comments = itertools.takewhile(lambda line: not line or line.startswith("#"), rest)
    return next((line for line in comments if re.match(r"#\s*@package\s", line)), None)


def check_secrets(overrides: Sequence[str]) -> None:
    """Rejects API keys and passwords before any of them is written anywhere.

    Raises:
        UserError: see :func:`~ood_lab.common.credentials.check_secret`.
    """
    for override in map(_parsed, overrides):
        values = [override.value()]
        if override.is_sweep_override():
            values = [_parsed(o).value() for o in _options(override, sweep=True)]
        for value in values:
            for name, leaf in leaves({override.key_or_group: value}):
                check_secret(str(name), leaf)


def _parsed(override: str) -> Override:
    try:
        (found,) = parsed([override])
    except HydraException as error:
        raise UserError(
            f"cannot read '{override}': brackets and quotation marks do not match; a text that "
            "holds them is written in quotes that reach the program, as in \"name='it\\'s'\""
        ) from error
    return found


def _options(override: Override, sweep: bool) -> list[str]:
    """The values of a sweep, each as an override."""
    if not override.is_sweep_override():
        return [str(override.input_line)]
    if not sweep:
        key, _, value = str(override.input_line).partition("=")
        raise UserError(
            f"{key} has several values: add -m to run each of them, write {key}=[{value}] if they "
            f"are one list, or \"{key}='{value}'\" if they are one text"
        )
    with reported_as(f"cannot sweep over '{override.input_line}': {{reason}}", HydraException):
        found = values_of(override)
    if not found:
        raise UserError(f"'{override.input_line}' is an empty sweep: give at least one value")
    return found


def _check_line(script: str, overrides: Sequence[str]) -> None:
    """Checks the line of one job."""
    given = parsed(overrides)
    choices = [override for override in given if is_choice(override)]
    for override in choices:
        _check_choice(override)
    try:
        cfg = chosen(script, [str(override.input_line) for override in choices])
    except Exception as error:  # whatever Hydra says of files that do not go together
        raise UserError(_first_line(error)) from error
    for override in given:
        if override not in choices:
            _check_value(override, cfg)


def _check_choice(override: Override) -> None:
    """Raises :class:`UserError` unless it names files of the group."""
    group = override.key_or_group
    if override.is_delete():
        raise UserError(f"~{group}: a group cannot be left out; choose another file of it")
    if not is_group(group):  # Hydra's own
        return
    options = [path.stem for path in conf_files(group)]
    if not options:
        inner = sorted(f"{group}/{path.name}" for path in (CONF / group).iterdir())
        raise UserError(f"'{group}' has no choices of its own, {' and '.join(inner)} have")
    value = override.value()
    if twice := _twice(override):
        raise UserError(f"{group} names {twice[0]} twice: leave one of them out")
    if isinstance(value, dict):
        raise UserError(_choice_and_settings(group, value))
    for choice in value if isinstance(value, list) else [value]:
        if choice is None:  # Hydra allows it in defaults lists alone
            known = ", ".join(options)
            raise UserError(f"{group}=null is not a choice: remove it, or choose from {known}")
        if str(choice) not in options:
            raise UserError(
                f"{group}={choice} is unknown. {key_suggestions.nearest(str(choice), options)}"
            )


def _twice(override: Override) -> list[Any]:
    """Files that a list of choices names more than once."""
    value = override.value()
    choices = value if isinstance(value, list) else []
    return [choice for place, choice in enumerate(choices) if choice in choices[:place]]


def _choice_and_settings(group: str, value: Mapping[Any, Any]) -> str:
    """The error message, with a corrected line, for settings given where a choice is expected."""
    names = [str(name) for name, inner in value.items() if isinstance(inner, Mapping)]
    chosen_names = [f"{group}=[{','.join(names)}]"] if names else []
    settings = [f"{group}.{key}={v}" for key, v in leaves({str(k): v for k, v in value.items()})]
    line = " ".join([*chosen_names, *settings])
    return f"{group}={{...}} gives settings where a choice is expected: write {line}"


def _check_value(override: Override, cfg: DictConfig) -> None:
    """Applies an override to the configuration.

    Raises:
        UserError: nothing reads the key, or it cannot be left out.
    """
    key = override.key_or_group
    # Below a node from which an object is built, its class decides what it takes.
    added = "." in key and (override.is_add() or override.is_force_add())
    if not (added or key_suggestions.has(cfg, key)):
        raise UserError(f"unknown key '{key}'. {key_suggestions.advice(key, cfg)}")
    if override.is_delete():
        _check_deletion(key, key_suggestions.parent_of(cfg, key))
    try:
        apply(cfg, [override])
    except Exception as error:  # from OmegaConf, which has a class for every kind of mismatch
        raise UserError(f"'{override.input_line}': {_first_line(error)}") from error


def _check_deletion(key: str, parent: DictConfig) -> None:
    """Raises unless the key has a default in its class, or is one of several objects."""
    leaf = key.rpartition(".")[2]
    nodes = [parent._get_node(name) for name in parent]
    objects = all(isinstance(node, DictConfig) for node in nodes)
    if leaf.startswith("_") or not ("_target_" in parent or objects):
        raise UserError(f"~{key}: this setting is needed; give it another value instead")


def _first_line(error: BaseException) -> str:
    """First line of an error from Hydra or OmegaConf, without the context below it."""
    cause = error.__cause__ or error
    return str(cause).strip().split("\n")[0]
