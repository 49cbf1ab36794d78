"""Labels of the training images, and the hierarchy of their classes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath
from ood_lab.common.hints import check_known, missing_path
from ood_lab.data.dataset import UNKNOWN, ImageDataset, ValueNames, columns_with
from ood_lab.data.sources.table_columns import read_texts
from ood_lab.schema.label_space import LabelSpace
from ood_lab.schema.results import Tables

#: The column of a hierarchy that holds the classes.
CLASS = "class"


def read_hierarchy(source: StrPath) -> pd.DataFrame:
    """Reads a table of the classes and what is above them.

    A CSV file has the column ``class`` and one column per level, coarse to fine, all of names::

        class,dynasty
        early Shang,Shang
        late Shang,Shang
        early Western Zhou,Western Zhou

    Returns:
        Index = class, one column of text per level, coarse to fine.

    Raises:
        UserError: a missing file or column, an empty cell, a class twice, a label with two parents.
    """
    file = Path(source)
    if not file.is_file():
        raise missing_path(file)
    table = read_texts(file, [CLASS])
    levels = [c for c in table if c != CLASS]
    if not levels:
        raise UserError(f"'{file}' has no level except 'class': add a column such as 'dynasty'")
    hierarchy = table.set_index(CLASS)[levels]
    twice = hierarchy.index[hierarchy.index.duplicated()]
    if len(twice):
        raise UserError(f"{file}: class '{twice[0]}' appears twice")
    for upper, lower in zip(hierarchy.columns, hierarchy.columns[1:], strict=False):
        for label, parents in hierarchy.groupby(lower)[upper].unique().items():
            if len(parents) > 1:
                raise UserError(
                    f"{file}: {lower} '{label}' has two parents in {upper}, '{parents[0]}' and "
                    f"'{parents[1]}': rename one, as in '{parents[1]} {label}'"
                )
    return hierarchy


def add_levels(
    tables: Tables,
    classes: Sequence[str],
    hierarchy: pd.DataFrame,
    source: str,
    names: ValueNames | None = None,
) -> dict[str, list[str]]:
    """Adds ``level_0 .. level_k`` to every table in place; ``level_k`` is the class itself.

    Args:
        tables: of the ID sets, with ``label``.
        classes: names of the classes, position = label.
        hierarchy: index = class, columns = levels, coarse to fine; may know more classes.
        source: of the hierarchy, for messages.
        names: of the labels of a level of the hierarchy, in order; default sorted.

    Returns:
        Names by column, position = value.

    Raises:
        UserError: a class is not in the hierarchy.
    """
    check_known(classes, hierarchy.index, f"{source} lacks the class '{{name}}' of train")
    rows = hierarchy.loc[list(classes)]
    by_level: dict[str, list[str]] = {}
    for table in tables.values():
        table.drop(columns=columns_with("level_", table), inplace=True)
    for i, level in enumerate(map(str, rows)):
        words = list(names[level]) if names else sorted(set(rows[level]))
        of_class = np.array([*map(words.index, rows[level]), UNKNOWN], dtype=np.int64)
        for table in tables.values():
            table[f"level_{i}"] = of_class[table["label"]]  # the last entry is that of label -1
        by_level[f"level_{i}"] = words
    return by_level | _add_classes(tables, classes, len(by_level))


def complete_levels(
    tables: Tables, classes: Sequence[str], names: Mapping[str, list[str]]
) -> dict[str, list[str]]:
    """Makes the classes the last of the levels that lists have brought, in place.

    A last column that says the same as the class under other numbers is replaced by it.

    Returns:
        The names with those of the last level.
    """
    levels = sorted(columns_with("level_", tables["train"]))
    if not levels or not classes:
        return dict(names)
    for name, table in tables.items():
        columns = sorted(columns_with("level_", table))
        if columns and columns != levels:
            raise UserError(
                f"train has the columns {', '.join(levels)}, {name} {', '.join(columns)}: "
                "give all the same levels"
            )
    train = tables["train"]
    labelled = train[train["label"] != UNKNOWN]
    pairs = labelled[["label", levels[-1]]].drop_duplicates()
    same = len(pairs) == labelled["label"].nunique() == labelled[levels[-1]].nunique()
    return {**names, **_add_classes(tables, classes, len(levels) - same)}


def _add_classes(tables: Tables, classes: Sequence[str], level: int) -> dict[str, list[str]]:
    for table in tables.values():
        table[f"level_{level}"] = table["label"]
    return {f"level_{level}": list(classes)}


def label_space(data: ImageDataset) -> LabelSpace:
    """The label sets of training images, as their table has them.

    Raises:
        UserError: a label of one level has two parents at the level above, or none.
    """
    levels = sorted(columns_with("level_", data.table))
    return LabelSpace(
        classes=len(data.classes),
        level_sizes=[len(data.names_of(level)) for level in levels],
        parents=[_parents(data, up, low) for up, low in itertools.pairwise(levels)],
        categories=len(data.names_of("category")),
        shapes=len(data.names_of("shape")),
        attributes=len(columns_with("attribute_", data.table)),
    )


def _parents(data: ImageDataset, upper: str, lower: str) -> list[int]:
    """The label of ``upper`` that goes with each label of ``lower``."""
    table = data.table
    labelled = table[(table[upper] != UNKNOWN) & (table[lower] != UNKNOWN)]
    parents_of = labelled.groupby(lower)[upper].unique()
    names = data.names_of(upper)
    parents = []
    for label, name in enumerate(data.names_of(lower)):
        above = list(parents_of.get(label, ()))
        if len(above) != 1:
            several = ", ".join(names[i] for i in above) or "none"
            raise UserError(
                f"'{name}' of {lower} has {len(above)} parents in {upper} ({several}): "
                "a hierarchy gives each label one"
            )
        parents.append(int(above[0]))
    return parents
