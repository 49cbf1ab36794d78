"""Quoting and parsing of overrides, and expansion of those that sweep."""

from __future__ import annotations

import os
from collections.abc import Iterator

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException

from ood_lab.common.errors import UserError

#: Keys of paths; below each of ``_PATHS_BELOW``, every key is one.
_PATHS = ("ckpt", "data.root", "data.levels", "data.hierarchy", "data.outliers", "task.images")
_PATHS_BELOW = ("data.id.", "data.ood.", "data.ood_val.", "data.csid.", "paths.")
#: Keys of regular expressions, whose brackets and commas Hydra reads in its own way.
_PATTERNS = ("data.group", "task.group")
_CLOSING = {"[": "]", "{": "}", "(": ")", "'": "'", '"': '"'}


def key_of(override: str) -> str:
    """The left side of an override: a key, or a group and its package."""
    return override.lstrip("+~").split("=", 1)[0]


def values_of(override: Override) -> list[str]:
    """The override as one or, for a sweep, several plain overrides.

    Raises:
        HydraException: Hydra cannot list the values that it would sweep over.
    """
    if override.is_sweep_override() and not override.is_delete():
        prefix = str(override.input_line).split("=", 1)[0]
        return [f"{prefix}={value}" for value in override.sweep_string_iterator()]
    return [str(override.input_line)]


def names_path(override: str) -> bool:
    """True if the value of an override is a path, whatever it looks like."""
    key = key_of(override)
    return key in _PATHS or (key.startswith(_PATHS_BELOW) and not key.endswith("."))


def paths_of(override: str) -> list[str]:
    """The paths that an override names, several in a sweep, as typed."""
    value = override.partition("=")[2]
    parts = [value] if os.path.exists(value) else list(_split(value))
    return [part.strip().strip("'\"") if part != value else part.strip("'\"") for part in parts]


def trimmed(argument: str) -> str:
    """The argument without surrounding blanks, except those that end a file's name."""
    bare, value = argument.strip(), argument.partition("=")[2]
    whole = names_path(bare) and value != value.rstrip() and os.path.exists(value)
    return argument.lstrip() if whole else bare


def quoted(override: str) -> str:
    """Quotes values that Hydra's grammar cannot read bare.

    These are paths with ``seed=0`` in them (as one path, in a sweep, a list or a dictionary), a
    file or folder whose name holds a comma, which would be a sweep, and one whose name is a number
    or ``off``.

    Raises:
        UserError: a path holds ``${``, which refers to another setting wherever it is written.
    """
    key, _, value = override.partition("=")
    if names_path(override) and value and value != "null" and _misread(override, value):
        return f"{key}={quote(value)}"
    if not value or value[0] in ("'", '"'):
        return override
    if key_of(override) in _PATTERNS and "(" in value:
        return f"{key}={quote(value)}"
    if "," in value and value[0] not in "[{" and os.path.exists(value):
        return f"{key}={quote(value)}"
    if _reads(override):
        return override
    if value[0] == "[" and value[-1] == "]":
        return f"{key}=[{','.join(_quoted_parts(value[1:-1]))}]"
    if value[0] == "{" and value[-1] == "}":
        return f"{key}={{{','.join(map(_quoted_item, _split(value[1:-1])))}}}"
    return f"{key}={','.join(_quoted_parts(value))}"


def quote(value: str) -> str:
    """The value in single quotes, with its content escaped."""
    return str(QuotedString(value, Quote.single).with_quotes())


def _misread(override: str, path: str) -> bool:
    """True if Hydra would read a path as something else.

    Raises:
        UserError: see :func:`quoted`.
    """
    there = os.path.exists(path)
    if there and "${" in path:
        raise UserError(
            f"{override.lstrip('+')}: '${{' refers to another setting: rename the folder, or link "
            "to it under another name"
        )
    try:
        found = OverridesParser.create().parse_override(override)
        value = found.value()
    except HydraException:
        return there
    if isinstance(value, bool | int | float) and not found.is_sweep_override():
        return True
    return there and (found.is_sweep_override() or value != path)


def _quoted_parts(text: str) -> list[str]:
    return [part if _reads(f"key={part}") else quote(part.strip()) for part in _split(text)]


def _quoted_item(item: str) -> str:
    key, colon, value = item.partition(":")
    return f"{key}{colon}{''.join(_quoted_parts(value.strip()))}" if colon else item


def _split(text: str) -> Iterator[str]:
    """The parts between commas outside brackets and quotation marks."""
    part, open_ = "", ""
    for letter in text:
        if letter == "," and not open_:
            yield part
            part = ""
            continue
        part += letter
        if open_ and letter == _CLOSING[open_[-1]]:
            open_ = open_[:-1]
        elif letter in _CLOSING and open_[-1:] not in ("'", '"'):
            open_ += letter
    yield part


def _reads(override: str) -> bool:
    try:
        OverridesParser.create().parse_override(override)
    except HydraException:
        return False
    return True
