"""Which images show one thing: frames of a scene, slices of a patient, crops of a photograph."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from ood_lab.common.english import counted, first_of
from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.hints import suggestion
from ood_lab.data.sources.folders import NO_LABEL
from ood_lab.data.sources.manifest import label_text
from ood_lab.data.sources.reading_warnings import Tell
from ood_lab.schema.image_columns import GROUP, MADE_OF
from ood_lab.schema.results import Tables

#: Values of the setting: each image counts; those of a folder belong together.
NONE, FOLDER = "none", "folder"
_KINDS = "give a column of the table, 'folder', or a pattern with one group, such as '(\\d+)_f'"


def add_groups(
    inside: Tables, outside: Tables, classes: Sequence[str], by: str | None, tell: Tell
) -> dict[str, list[str]]:
    r"""Gives all sets a column ``group``: equal numbers where images belong together, in place.

    A name means the same group in every set. An image without a name is a group of its own.

    Args:
        inside: tables of the ID sets, of which each must have groups.
        outside: tables of the other sets.
        classes: names of the ID classes, position = label.
        by: a column; ``folder``; or a regular expression with one group, searched for in the path
            below the common folder of a set, as in ``(\d+)_f``. None or ``none`` = no column.
        tell: receives the number of groups, and what is doubtful.

    Returns:
        Names by column, position = value; empty where each image is its own.

    Raises:
        UserError: no such column, a pattern that is none or matches nothing, or one group in two
            classes.
    """
    if by is None or by == NONE:
        return {}
    sets = {**inside, **outside}
    names = [
        group_names(table, name, "data.group", by, tell, required=name in inside)
        for name, table in sets.items()
    ]
    codes, words = pd.factorize(np.concatenate(names))
    if len(words) == len(codes):
        tell(f"data.group={by}: each image is a group of its own")
        return {}
    ends = np.cumsum([len(of) for of in names])[:-1]
    for table, numbers in zip(sets.values(), np.split(codes, ends), strict=True):
        table[GROUP], table[MADE_OF] = numbers, words[numbers]
    tables = pd.concat(inside, names=["split"]).reset_index("split")
    labelled = tables[tables["label"] >= 0]
    if len(mixed := labelled[labelled[GROUP].isin(_with_several(labelled, "label"))]):
        first = mixed[mixed[GROUP] == mixed[GROUP].iloc[0]]
        shown = " and ".join(f"'{classes[label]}'" for label in first["label"].unique()[:2])
        raise UserError(
            f"data.group={by}: group '{words[first[GROUP].iloc[0]]}' has images of {shown}: give "
            "groups of one class, for example by a pattern that begins with the class"
        )
    if len(several := _with_several(tables, "split")):
        tell(
            f"data.group={by}: {counted(len(several), 'group')} "
            f"({first_of([words[code] for code in several])}) in more than one of "
            f"{', '.join(inside)}: their results are too good"
        )
    n = tables[GROUP].nunique()
    tell(f"{counted(len(tables), 'ID image')} in {counted(n, 'group')} (data.group={by})", False)
    return {GROUP: list(words)}


def group_names(
    table: pd.DataFrame, of: str, key: str, by: str, tell: Tell, required: bool = True
) -> np.ndarray:
    """The name of the group of each image, ``[N]``; its path where it has none.

    Args:
        table: with a column ``path``.
        of: what to call the images.
        key: the setting.
        by: its value, see :func:`add_groups`.
        tell: receives the number of images without a group.
        required: False = all images may be without a group.

    Raises:
        UserError: see :func:`add_groups`.
    """
    paths = table["path"].astype(str)
    if by == FOLDER:
        return paths.map(os.path.dirname).to_numpy(object)
    if by in table:
        names = label_text(table[by])
        names = names.where(names != NO_LABEL)
    elif "(" in by:
        names = _matches(paths, key, by)
    elif required:
        columns = [str(c) for c in table if c not in ("path", "label")]
        near = suggestion(by, columns).rstrip("?")
        raise UserError(f"{key}={by}: {of} has no column '{by}' ({near}): {_KINDS}")
    else:
        names = pd.Series(None, paths.index, object)
    ungrouped = int(names.isna().sum())
    if required and ungrouped == len(table):
        raise UserError(f"{key}={by} matches no image of {of}, as '{paths.iat[0]}': {_KINDS}")
    if ungrouped:
        without = f"{counted(ungrouped, 'image')} of {of} without a group, each its own"
        tell(f"{key}={by}: {without}", doubtful=required)
    return names.fillna(paths).to_numpy(object)


def _matches(paths: pd.Series, key: str, pattern: str) -> pd.Series:
    """What the group of the pattern matches in each path; missing where nothing does."""
    with reported_as(f"{key}={pattern} is not a regular expression: {{reason}}", re.error):
        compiled = re.compile(pattern)
    if compiled.groups != 1:
        raise UserError(f"{key}={pattern} should have one group in brackets: {_KINDS}")
    folders = [os.path.dirname(path) for path in paths]
    common = os.path.commonpath(folders) if all(map(os.path.isabs, folders)) else ""

    def match(path: str) -> str | None:
        place = Path(os.path.relpath(path, common)).as_posix() if common else path
        return of.group(1) if (of := compiled.search(place)) else None

    return paths.map(match)


def _with_several(table: pd.DataFrame, column: str) -> list[int]:
    """Groups whose images have several values in a column."""
    values = table.groupby(GROUP, sort=False)[column].nunique()
    return list(values.index[values > 1])
