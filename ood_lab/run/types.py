"""Whether the values of a configuration are of the kind that the classes they go to declare."""

from __future__ import annotations

import inspect
import os
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Optional, TypeVar, Union, get_args, get_origin

from hydra.utils import get_object

from ood_lab.errors import UserError

#: How the kinds are called in messages.
_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "a dictionary",
    type(None): "null",
}
_PATHS = (Path, os.PathLike)
_SEQUENCES = (list, tuple, Sequence)
_MAPPINGS = (dict, Mapping)


def check_types(settings: Mapping[str, Any], prefix: str = "") -> None:
    """Compares every node that has a ``_target_`` with the signature of what it names.

    Parameters without a type, or with one that a configuration cannot hold, take anything.

    Args:
        settings: the resolved configuration, or a node of it.
        prefix: key of the node, with a dot at its end.

    Raises:
        UserError: a value is of another kind; the message names its key and what it may be.
    """
    if "_target_" in settings:
        check_node(settings, _declared(str(settings["_target_"])), prefix)
    for key, value in settings.items():
        for name, node in _nodes(value, f"{prefix}{key}"):
            check_types(node, f"{name}.")


def check_node(node: Mapping[str, Any], declared: Mapping[str, Any], prefix: str) -> None:
    """Compares the values of one node with the types of its keys; the other keys take anything."""
    for key, value in node.items():
        if key not in declared or (isinstance(value, Mapping) and "_target_" in value):
            continue
        if value is None and node.get("_partial_"):  # filled in by the one who calls it
            continue
        kinds = _kinds(declared[key])
        if kinds - {type(None)} and not any(_fits(value, kind) for kind in kinds):
            words = sorted({_word(kind) for kind in kinds}, key="null".__eq__)
            raise UserError(f"{prefix}{key}={value}: give {' or '.join(words)}")


def _nodes(value: Any, key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(value, Mapping):
        yield key, value
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _nodes(item, f"{key}[{position}]")


def _declared(target: str) -> dict[str, Any]:
    """Types of the parameters of a class or function; none where they cannot be known."""
    try:
        return declared_types(get_object(target))
    except Exception:  # a wrong target is reported where the object is built
        return {}


def declared_types(target: Callable[..., Any]) -> dict[str, Any]:
    """Types of the parameters; of a class with ``**options``, those of its base classes too."""
    if not inspect.isclass(target):
        return _hints(target)
    found: dict[str, Any] = {}
    for base in inspect.getmro(target):
        if "__init__" in vars(base):
            initialise = vars(base)["__init__"]
            found = _hints(initialise) | found
            parameters = inspect.signature(initialise).parameters.values()
            if not any(p.kind is p.VAR_KEYWORD for p in parameters):
                break
    return found


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {
        p.name: Optional[hint] if p.default is None else hint  # noqa: UP045 - not of every hint
        for p in parameters
        if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        and (hint := _evaluated(p.annotation, function)) is not None
    }


def _evaluated(annotation: Any, function: Callable[..., Any]) -> Any:
    """The type that an annotation stands for; None where there is none or it cannot be read."""
    if annotation is inspect.Parameter.empty:
        return None
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, inspect.unwrap(function).__globals__)
    except Exception:  # the name of a class that is imported for type checkers alone
        return None


def _kinds(hint: Any) -> set[Any]:
    """What a configuration can hold among the alternatives of a type; empty for anything."""
    alternatives = list(_alternatives(hint))
    if any(kind is Any or isinstance(kind, TypeVar) for kind in alternatives):
        return set()
    return {kind for kind in alternatives if kind in _WORDS or get_origin(kind) is Literal}


def _alternatives(hint: Any) -> Iterator[Any]:
    origin = get_origin(hint) or hint
    if origin in (Union, types.UnionType):
        for part in get_args(hint):
            yield from _alternatives(part)
    elif origin in _SEQUENCES:
        yield list
    elif origin in _MAPPINGS:
        yield dict
    elif origin in _PATHS:
        yield str
    else:
        yield hint


def _fits(value: Any, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return value in get_args(kind) and type(value) in map(type, get_args(kind))
    if kind in (int, float) and isinstance(value, bool):
        return False
    if kind is float:
        return isinstance(value, (int, float))
    if kind is str:  # a name may consist of digits
        return isinstance(value, (str, int, float)) and not isinstance(value, bool)
    return isinstance(value, kind)


def _word(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(map(str, get_args(kind)))
    return _WORDS[kind]
