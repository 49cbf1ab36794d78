"""Plain values are checked against the type hints of the function that is to take them.

A range is part of the hint: ``draws: Annotated[int, Interval(ge=1, le=100_000)]``.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import (
    Annotated,
    Any,
    TypeVar,
    Unpack,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from annotated_types import Ge, Gt, Interval
from pydantic import ConfigDict, TypeAdapter, ValidationError

from ood_lab.common.errors import UserError
from ood_lab.common.files import packaged_table

#: Whole numbers from 0, from 1, up to what a machine can be asked for, and what seeds generators.
Natural = Annotated[int, Ge(0)]
Count = Annotated[int, Ge(1)]
BatchSize = Annotated[int, Interval(ge=1, le=65_536)]
Workers = Annotated[int, Interval(ge=0, le=1_024)]
Levels = Annotated[int, Interval(ge=1, le=1_000)]
Seed = Annotated[int, Interval(ge=0, lt=2**32)]
Positive = Annotated[float, Gt(0)]
NotNegative = Annotated[float, Ge(0)]
Share = Annotated[float, Interval(ge=0, le=1)]
#: Above 0; above 0 and below 1.
PositiveShare = Annotated[float, Interval(gt=0, le=1)]
InnerShare = Annotated[float, Interval(gt=0, lt=1)]

#: By name: a node of the configuration, the arguments of a call, or all that a result depends on.
Settings = Mapping[str, Any]
#: By name, where more may be added: the fields of a row or a record, the arguments of a call.
Fields = dict[str, Any]

_Class = TypeVar("_Class")
_CONFIG = ConfigDict(arbitrary_types_allowed=True)
#: What to give instead, by the kind of pydantic's error; others in its own words.
_REMEDIES: dict[str, str] = packaged_table("ood_lab.common", "remedies.yaml")
#: Branches of a hint that no value of a configuration can take: they are not worth naming.
_OBJECTS = ("needs_python_object", "is_subclass_of", "callable_type")


@dataclass_transform(eq_default=False)
def with_settings(cls: type[_Class]) -> type[_Class]:
    """A class whose annotated attributes are its settings: the arguments of its constructor."""
    return dataclass(repr=False, eq=False)(cls)


@dataclass(frozen=True)
class Remedy:
    """Metadata of a hint (``Annotated[int, Remedy("...")]``): what the user may have meant."""

    text: str


def check_values(function: Callable[..., Any], values: Settings, key: str) -> None:
    """Checks plain values against the hints of the parameters that they are for.

    Objects, and parameters without a hint that can be read, are not checked. A number is no
    substitute for another kind: 2.0 and "2" are not whole numbers, 1 is not true.

    Args:
        function: a function, or a class that is built from them.
        values: by the name of the parameter.
        key: of ``values`` in the configuration.

    Raises:
        UserError: a value of another type or out of range; names ``key`` and what to give.
    """
    hints = hints_of(function)
    for name, value in values.items():
        if name in hints and (wanted := _mismatch(hints[name], value)):
            shown = "null" if value is None else value
            raise UserError(f"{key}.{name}={shown}: give {wanted}")


@lru_cache(maxsize=1000)
def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Hints by parameter; of a class that hands ``**options`` on, those of its parents too."""
    owners: list[Callable[..., Any]] = [function]
    if inspect.isclass(function):
        # A dataclass is read itself: the fields of its parents have hints of other modules.
        owners = [
            parent if "__dataclass_fields__" in vars(parent) else vars(parent)["__init__"]
            for parent in reversed(inspect.getmro(function))
            if "__init__" in vars(parent)
        ]
    # A class may take its options from the fields of others.
    groups = getattr(function, "OPTIONS", ()) if inspect.isclass(function) else ()
    hints: dict[str, Any] = {}
    for group in groups:
        hints |= get_type_hints(group, include_extras=True)
    for owner in owners:
        try:
            declared = get_type_hints(owner, include_extras=True)
            kinds = {p.kind for p in inspect.signature(owner).parameters.values()}
            passes_on = inspect.Parameter.VAR_KEYWORD in kinds
        except (NameError, TypeError, AttributeError, ValueError):  # not to be read from outside
            declared, passes_on = {}, False
        hints = (hints if passes_on or groups else {}) | declared
        for hint in declared.values():  # of **options: those that a TypedDict names
            if get_origin(hint) is Unpack:
                hints |= get_type_hints(get_args(hint)[0], include_extras=True)
    return hints


def _mismatch(hint: Any, value: Any) -> str | None:
    """What to give in place of ``value``; None where it will do, or is an object.

    Pydantic reads JSON strictly: a list may be a tuple, and a text a path, but 2.0 is not 2.
    """
    try:
        text, adapter = json.dumps(value), _adapter(hint)
    except TypeError:  # an object, or a hint with unhashable parts
        return None
    if adapter is None:
        return None
    try:
        adapter.validate_json(text, strict=True)
    except ValidationError as error:
        if isinstance(value, int | float) and _mismatch(hint, str(value)) is None:
            return None  # a name such as 2024, which YAML reads as a number
        return _wanted(error, hint)
    return None


@lru_cache(maxsize=1000)
def _adapter(hint: Any) -> TypeAdapter[Any] | None:
    """What reads values of this type; None where pydantic knows no such type."""
    try:
        return TypeAdapter(hint, config=_CONFIG)
    except Exception:  # it raises several kinds of error
        return None


def _wanted(error: ValidationError, hint: Any) -> str:
    errors = [e for e in error.errors() if e["type"] not in _OBJECTS] or error.errors()
    parts = dict.fromkeys(_words(e["type"], e.get("ctx", {}), e["msg"]) for e in errors)
    annotated = (h for h in (hint, *get_args(hint)) if get_origin(h) is Annotated)
    metadata = (part for h in annotated for part in get_args(h)[1:])
    remedies = [part.text for part in metadata if isinstance(part, Remedy)]
    return "; ".join([" or ".join(parts), *remedies])


def _words(kind: str, context: Mapping[str, Any], message: str) -> str:
    for name in (kind, kind.split("_")[0]):
        if name in _REMEDIES:
            return _REMEDIES[name].format(**context)
    return message.removeprefix("Input should be ").removeprefix("Value should be ")
