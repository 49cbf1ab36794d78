"""Overrides of a command line, for Hydra's parser: other names, new keys, and paths in quotes."""

from __future__ import annotations

import os
import re
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException

from ood_lab.common.errors import UserError
from ood_lab.common.files import packaged_table

_NAMES: dict[str, dict[str, str]] = packaged_table("ood_lab.run.commandline", "other_names.yaml")
#: Another package's name of a detector -> ours.
ALIASES = _NAMES["detectors"]
#: Names that other tools use for a key, where the spelling would not lead to ours.
SYNONYMS = _NAMES["keys"]
#: Below these, users invent the names: those of sets (`data.ood.mine=DIR`) ...
OF_SETS = ("data.ood.", "data.ood_val.", "data.csid.", "data.ood_groups.")
#: ... and others.
OPEN_KEYS = (
    *OF_SETS,
    "model.net.",
    "model.kwargs.",
    "lvlm.extra_body",
    "judge.extra_body",
    "reader.extra_body",
)
#: Beginnings of keys whose value is a path even if it looks like a number or a switch.
_PATHS = (
    "ckpt",
    "data.root",
    "data.levels",
    "data.hierarchy",
    "data.outliers",
    "task.images",
    "data.id.",
    "data.ood.",
    "data.ood_val.",
    "data.csid.",
    "paths.",
)
_EQUALS = re.compile(r"""('[^']*'|"[^"]*")|(?<!\\)=""")


def parsed(override: str) -> Override:
    """The override as Hydra reads it.

    Raises:
        HydraException: it is not in Hydra's grammar.
    """
    return OverridesParser.create().parse_override(override)


def key_of(override: str) -> str:
    """The left side of an override: a key, or a group and its package."""
    return override.lstrip("+~").split("=", 1)[0]


def options_of(override: str) -> list[str]:
    """The override as one or, for a sweep, several plain overrides.

    Raises:
        HydraException: Hydra cannot list the values that it would sweep over.
    """
    parts = parsed(override)
    if not parts.is_sweep_override() or parts.is_delete():
        return [override]
    prefix = override.split("=", 1)[0]
    return [f"{prefix}={value}" for value in parts.sweep_string_iterator()]


def values_of(override: str) -> list[Any]:
    """The values of an override, several in a sweep."""
    return [parsed(option).value() for option in options_of(override)]


def quote(value: object) -> str:
    """The value in single quotes, with its content escaped."""
    return str(QuotedString(str(value), Quote.single).with_quotes())


def readable(argument: str) -> str:
    """An argument in Hydra's grammar, with our names of detectors and new keys as ``++key``.

    The signs ``=`` of a path are escaped. A value that Hydra cannot read, and a path that it would
    read as something else, is quoted.

    Raises:
        UserError: a path holds ``${``, which refers to another setting wherever it is written.
    """
    key, equals, value = _with_our_names(argument).partition("=")
    if argument.startswith("-") or not equals:
        return argument
    key = f"++{key}" if key.startswith(OPEN_KEYS) else key
    if not value or value[0] in "'\"":
        return f"{key}={value}"
    there = os.path.exists(value)
    if there and "${" in value:
        raise UserError(
            f"{key.lstrip('+')}: '${{' refers to another setting: rename the folder, or link to it "
            "under another name"
        )
    plain = _EQUALS.sub(lambda match: match[1] or r"\=", value)
    try:
        part = parsed(f"x={plain}")
    except HydraException:
        return f"{key}={quote(value)}"
    number = isinstance(part.value(), bool | int | float)
    is_path = number and key.lstrip("+").startswith(_PATHS)
    other = there and not number and part.value() != value
    return f"{key}={quote(value) if is_path or other else plain}"


def _with_our_names(override: str) -> str:
    """``detector=[energy,knn]`` and ``detector.energy.t=2`` with our names."""
    key, equals, value = override.partition("=")
    if key == "detector":
        value = re.sub(r"\w+", lambda word: our_name(word[0]), value)
    elif key.startswith("detector."):
        group, name, *rest = key.split(".")
        key = ".".join([group, our_name(name), *rest])
    return f"{key}{equals}{value}"


def our_name(detector: str) -> str:
    """Our name of a detector."""
    return ALIASES.get(detector.lower(), detector)
