"""Names in label columns become numbers, the same in all sets."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.hints import suggestion
from ood_lab.data.dataset import UNKNOWN
from ood_lab.data.sources.class_names import ordered_names

_UNKNOWN_NAME = str(UNKNOWN)


def is_named(column: str) -> bool:
    """True for the columns whose values stand for names: ``category, shape, level_<n>``."""
    return column in ("category", "shape") or column.startswith("level_")


def label_columns(table: pd.DataFrame) -> list[str]:
    """The columns that are labels beside the class."""
    names = [str(column) for column in table.columns]
    return [name for name in names if is_named(name) or name.startswith("attribute_")]


def encode_names(
    identity: Mapping[str, pd.DataFrame], outside: Mapping[str, pd.DataFrame]
) -> dict[str, list[str]]:
    """Turns the names in ``category``, ``shape`` and ``level_<n>`` into integers, in place.

    The names of train in order are 0, 1, ... (see
    :func:`~ood_lab.data.sources.class_names.ordered_names`); empty and ``-1`` are -1. In an OOD
    set, a name that ID does not know is -1: such a thing may well be something else; levels are
    left out there: what has no class has none.

    Args:
        identity: tables of ``train`` and, where they have their own source, ``val`` and ``test``.
        outside: tables of the OOD sets.

    Returns:
        Names by column, position = value.

    Raises:
        UserError: val or test has a name that train does not have, or names where train has
            numbers.
    """
    columns = dict.fromkeys(c for table in identity.values() for c in map(str, table))
    for table in outside.values():
        named = filter(is_named, map(str, table))
        table.drop(
            columns=[c for c in named if c.startswith("level_") or c not in columns], inplace=True
        )
    found = {}
    for column in filter(is_named, columns):
        inside = {name: table for name, table in identity.items() if column in table}
        beyond = {name: table for name, table in outside.items() if column in table}
        found[column] = _encode(column, inside, beyond)
    return found


def _encode(
    column: str, inside: Mapping[str, pd.DataFrame], outside: Mapping[str, pd.DataFrame]
) -> list[str]:
    first = next(iter(inside.values()))[column].map(str)
    names = ordered_names(set(first) - {_UNKNOWN_NAME})
    position = {name: value for value, name in enumerate(names)} | {_UNKNOWN_NAME: UNKNOWN}
    for name, table in inside.items():
        given = table[column].map(str)
        unknown = sorted(set(given) - set(position))
        if unknown:
            raise UserError(
                f"{name} has {column} '{unknown[0]}', which {next(iter(inside))} does not have: "
                f"{suggestion(unknown[0], names)}"
            )
        table[column] = given.map(position).astype(np.int64)
    for table in outside.values():
        table[column] = table[column].map(str).map(position).fillna(UNKNOWN).astype(np.int64)
    return names


def align_attributes(tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The tables with the columns ``attribute_<name>`` in the order that train has them.

    Raises:
        UserError: val or test has attributes, but not those of train.
    """
    wanted = [c for c in map(str, tables["train"]) if c.startswith("attribute_")]
    aligned = {}
    for name, table in tables.items():
        own = [c for c in map(str, table) if c.startswith("attribute_")]
        if own and (odd := sorted(set(own) ^ set(wanted))):
            raise UserError(
                f"{name} and train differ in column {odd[0]}: give both the same attribute_ columns"
            )
        aligned[name] = table[[*(c for c in table if c not in own), *(wanted if own else [])]]
    return aligned
