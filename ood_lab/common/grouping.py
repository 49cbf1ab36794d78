"""What values have in common, and parts of dictionaries."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


def distinct(values: Iterable[Key]) -> list[Key]:
    """Each value once, in the order in which they first come."""
    return list(dict.fromkeys(values))


def common_start(one: Sequence[Key], other: Sequence[Key]) -> int:
    """How many values two sequences begin with alike."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """The values of each key, in the order in which both come."""
    groups: dict[Key, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def with_keys(values: Mapping[Key, Value], keys: Container[Any]) -> dict[Key, Value]:
    """The values of these keys, in the order of ``values``."""
    return {key: value for key, value in values.items() if key in keys}


def without_keys(values: Mapping[Key, Value], keys: Container[Any]) -> dict[Key, Value]:
    """The values of all other keys, in the order of ``values``."""
    return {key: value for key, value in values.items() if key not in keys}


def without_none(values: Mapping[Key, Value | None]) -> dict[Key, Value]:
    """The values that are not None."""
    return {key: value for key, value in values.items() if value is not None}
