"""Names in label columns become numbers, the same in all sets."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import pandas as pd

from ood_lab.common.english import first_of
from ood_lab.common.errors import UserError
from ood_lab.common.hints import check_known, suggestion
from ood_lab.data.dataset import UNKNOWN, columns_with
from ood_lab.schema.arrays import positions
from ood_lab.schema.image_columns import LISTS
from ood_lab.schema.results import Tables

_UNKNOWN_NAME = str(UNKNOWN)
#: Digits; longer ones are names to every program that numbers classes.
_DIGITS = re.compile(r"[0-9]{1,40}")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
#: Share of the numbers from 0 to the largest label that must occur for labels to be positions.
DENSE = 0.5
#: Names that a message shows.
_SHOWN = 8


def is_named(column: str) -> bool:
    """True for the columns whose values stand for names: ``category, shape, level_<n>``."""
    return column in ("category", "shape") or column.startswith("level_")


def label_columns(table: pd.DataFrame) -> list[str]:
    """The columns that are labels, except the class."""
    names = [str(column) for column in table.columns]
    prefixes = ("attribute_", LISTS)
    return [name for name in names if is_named(name) or name.startswith(prefixes)]


def encode_names(identity: Tables, outside: Tables) -> dict[str, list[str]]:
    """Turns the names in ``category``, ``shape`` and ``level_<n>`` into integers, in place.

    The names of train in order are 0, 1, ... (see
    :func:`ordered_names`); empty and ``-1`` are -1. In an OOD
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
    names = {}
    for column in filter(is_named, columns):
        inside = {name: table for name, table in identity.items() if column in table}
        beyond = {name: table for name, table in outside.items() if column in table}
        names[column] = _encode(column, inside, beyond)
    return names


def _encode(column: str, inside: Tables, outside: Tables) -> list[str]:
    first = next(iter(inside.values()))[column].map(str)
    names = ordered_names(set(first) - {_UNKNOWN_NAME})
    for name, table in inside.items():
        unknown = sorted(set(table[column].map(str)) - {*names, _UNKNOWN_NAME})
        wrong = f"{name} has {column} '{{name}}', which {next(iter(inside))} does not have"
        check_known(unknown, names, wrong)
    for table in (*inside.values(), *outside.values()):
        # -1, UNKNOWN, where it is none of the names.
        table[column] = positions(names, table[column].map(str))
    return names


def align_attributes(tables: Tables) -> dict[str, pd.DataFrame]:
    """The tables with the columns ``attribute_<name>`` in the order that train has them.

    Raises:
        UserError: val or test has attributes, but not those of train.
    """
    wanted = columns_with("attribute_", tables["train"])
    aligned = {}
    for name, table in tables.items():
        columns = columns_with("attribute_", table)
        if columns and (odd := sorted(set(columns) ^ set(wanted))):
            raise UserError(
                f"{name} and train differ in column {odd[0]}: give both the same attribute_ columns"
            )
        aligned[name] = table[
            [*(c for c in table if c not in columns), *(wanted if columns else [])]
        ]
    return aligned


def ordered_names(labels: Iterable[str]) -> list[str]:
    """The names of the classes of a table, position = class.

    Whole numbers that begin at 0 and omit at most half are positions: 0, 1, 3 are four
    classes. All other names are one class each: numbers in their order, else sorted as text.
    Names are text: ``1`` and ``01`` are two.
    """
    names = sorted(set(labels))
    if not names or not all(map(_DIGITS.fullmatch, names)):
        return names
    if "0" in names and all(map(_NUMBER.fullmatch, names)):
        most = max(map(int, names)) + 1
        if len(names) >= DENSE * most:
            return list(map(str, range(most)))
    return sorted(names, key=lambda name: (int(name), name))


def matched(
    labels: Collection[str], names: Sequence[str], numeric: bool
) -> tuple[dict[str, int], str]:
    """The class of each given name, and how they were matched where not letter by letter.

    In order: the same names; names that differ in case, spaces, dashes, underscores or leading
    zeros; numbers that are positions from 0; the numbers 1 to C of C classes. Each only if it
    gives every name one class.

    Args:
        labels: names of one set.
        names: of the classes, position = class.
        numeric: numbers may be positions.

    Returns:
        Position by name, of as many as have one, and a sentence or nothing.
    """
    exact = {name: i for i, name in enumerate(names)}
    classes = {name: exact[name] for name in labels if name in exact}
    if len(classes) == len(labels):
        return classes, ""
    plain = {name: _plain(name) for name in names}
    times = Counter(plain.values())
    loose = {form: name for name, form in plain.items() if times[form] == 1}
    spellings = {_plain(name) for name in labels}
    if spellings <= loose.keys() and len(spellings) == len(labels):
        pairs = {name: exact[loose[_plain(name)]] for name in labels}
        changed = [name for name in sorted(labels) if name not in exact]
        shown = first_of([f"'{name}' is '{loose[_plain(name)]}'" for name in changed])
        return pairs, f"its names are spelled in another way than the classes: {shown}"
    numbers = {name: int(name) for name in labels if numeric and _NUMBER.fullmatch(name)}
    if classes or len(numbers) < len(labels):
        return classes, ""
    if max(numbers.values()) < len(names):
        return numbers, f"its numbers are positions of the classes: 0 is '{names[0]}'"
    if sorted(numbers.values()) == list(range(1, len(names) + 1)):
        counted = {name: number - 1 for name, number in numbers.items()}
        return counted, f"its numbers count the classes from 1: 1 is '{names[0]}'"
    return {name: number for name, number in numbers.items() if number < len(names)}, ""


def mismatch(labels: Collection[str], names: Sequence[str], unknown: str, source: str) -> str:
    """The message for a name that is no class."""
    return (
        f"'{source}' has class '{unknown}', which is not one of the {len(names)} classes "
        f"of train: {suggestion(unknown, names)} "
        f"(it has {_shown(sorted(labels))}; train has {_shown(names)})"
    )


def _shown(names: Sequence[str]) -> str:
    return first_of([f"'{name}'" for name in names], _SHOWN)


def _plain(name: str) -> str:
    """A name without case, spaces, dashes, underscores and leading zeros."""
    text = re.sub(r"[\s_\u2010-\u2015-]+", "", unicodedata.normalize("NFKC", name).casefold())
    return re.sub(r"(?<![0-9.])0+(?=[0-9])", "", text)
