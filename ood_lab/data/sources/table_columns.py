"""The columns of a table of images that are read, however their names are written."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import pandas as pd

from ood_lab.common.english import first_of
from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.hints import check_known, nearest
from ood_lab.common.unicode_names import composed
from ood_lab.data.sources.reading_warnings import Tell
from ood_lab.schema.image_columns import LEVELS

#: Columns that are read, beside ``level_<n>`` and ``attribute_<name>``.
KNOWN = ("path", "label", "category", "shape", "mask", *LEVELS)
#: Columns that hold the class in other people's tables.
CLASS_NAMES = ("class", "classes", "labels", "target", "targets", "category_name", "y")
#: Columns that are read as another one, where a table lacks it and has only one of them.
SYNONYMS = {"path": ("filename", "file", "image"), "label": ("class", "target")}
#: Columns that this package's own tables have, and row numbers: never reported missing.
_OWN = re.compile(r"category_name|index|dataset|unnamed: \d+|__index_level_\d+__")
#: Least similarity of a name to one that is read.
_CLOSE = 0.75


def renamed(
    columns: Iterable[object], file: Path, chosen: Collection[str] = (), tell: Tell | None = None
) -> dict[object, str]:
    """The name under which each column is read: spaces around it and capitals do not count.

    Where one column has exactly the name, others that differ only by these keep theirs. A column
    of :data:`SYNONYMS` is read, too, and ``tell`` receives as what.

    Args:
        columns: of the table.
        file: the table, for messages.
        chosen: names for which the user has chosen a column.
        tell: receives which synonyms are read; None = nobody.

    Raises:
        UserError: two columns could be meant.
    """
    wanted: defaultdict[str, list[object]] = defaultdict(list)
    names = {column: str(column) for column in columns}
    for column, name in names.items():
        wanted[_plain(name)].append(column)
    for plain, candidates in wanted.items():
        if not _is_read(plain) or plain in names.values():
            continue
        if len(candidates) > 1:
            raise UserError(
                f"'{file}' has {len(candidates)} columns that may be '{plain}': "
                f"{' and '.join(repr(names[column]) for column in candidates)}: keep one of them"
            )
        names[candidates[0]] = plain
    for name, synonyms in SYNONYMS.items():
        candidates = [column for column, text in names.items() if _plain(text) in synonyms]
        hidden = name in chosen or name in names.values()
        # Hugging Face's ImageFolder names its files so.
        if hidden or len(candidates) != 1 or (name == "path" and "file_name" in names.values()):
            continue
        if tell is not None:
            tell(f"'{file}': the column '{names[candidates[0]]}' is read as {name}", False)
        names[candidates[0]] = name
    return names


def tell_unread(columns: Sequence[str], source: Path, labelled: bool, tell: Tell) -> None:
    """Names the columns that nothing reads, those first that may be meant for one that is.

    Args:
        columns: of the table, as :func:`renamed`.
        source: the table.
        labelled: whether labels are needed.
        tell: receives them.
    """
    free = [name for name in (*KNOWN, "level_0") if name not in columns and name != "path"]
    if not labelled:
        free = [name for name in free if name not in ("label", "level_0")]
    nothing_reads = []
    for name in columns:
        plain = _plain(name)
        if _is_read(name):
            continue
        close = ["label"] if plain in CLASS_NAMES else nearest(plain, free, _CLOSE)
        if close and close[0] in free:
            tell(
                f"nothing reads the column '{name}' of '{source}': if it is the {close[0]}, call "
                f"it '{close[0]}'"
            )
        elif not _OWN.fullmatch(plain):
            nothing_reads.append(f"'{name}'")
    if nothing_reads:
        tell(f"nothing reads these columns of '{source}': {first_of(nothing_reads, 5)}", False)


def _plain(name: str) -> str:
    """The name without what surrounds it, in small letters but for the name of an attribute."""
    text = " ".join(name.strip("\ufeff\u200b").split())
    head, mark, rest = text.partition("_")
    return f"attribute_{rest}" if mark and head.casefold() == "attribute" else text.casefold()


def _is_read(name: str) -> bool:
    return name in KNOWN or name.startswith("attribute_") or bool(re.fullmatch(r"level_\d+", name))


def read_texts(
    file: Path, required: Collection[str], filled: Collection[str] | None = None
) -> pd.DataFrame:
    """Reads a CSV file as texts.

    Args:
        file: of the table.
        required: columns that it must have.
        filled: columns that may have no empty cell; None = all.

    Raises:
        UserError: it cannot be read, lacks a column or a cell.
    """
    with reported_as(f"cannot read '{file}': {{reason}}", (ValueError, OSError)):
        table = pd.read_csv(file, dtype=str, keep_default_na=False, encoding="utf-8-sig")
        if not isinstance(table.index, pd.RangeIndex):
            raise ValueError("its rows have more cells than its first line names")
    check_known(required, table, f"'{file}' has no column '{{name}}'")
    table = table.rename(columns=str.strip).apply(lambda column: column.str.strip().map(composed))
    for column in table if filled is None else filled:
        if (table[column] == "").any():
            row = int((table[column] == "").to_numpy().argmax()) + 1
            raise UserError(f"'{file}' row {row} has no {column}")
    return table
