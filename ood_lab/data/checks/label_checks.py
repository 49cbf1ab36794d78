"""Checks that a classifier can learn from the class labels of the ID images."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.data.dataset import UNKNOWN, Splits
from ood_lab.data.sources.table_columns import CLASS_NAMES
from ood_lab.schema.results import Tables


def check_classes(classes: Sequence[str], source: str) -> None:
    """Raises :class:`UserError` where two classes differ only in upper and lower case.

    Single letters may: they are classes of their own in sets of handwriting.
    """
    alike: defaultdict[str, list[str]] = defaultdict(list)
    for name in classes:
        alike[name.casefold()].append(name)
    for names in alike.values():
        if len(names) > 1 and len(names[0]) > 1:
            raise UserError(
                f"{source} has the classes {' and '.join(map(repr, names))}, which differ only in "
                "upper and lower case: give both one name"
            )


def missing_labels(table: pd.DataFrame) -> str | None:
    """Says which rows have no label; None where all have one, or none has."""
    without = (table["label"] == UNKNOWN).to_numpy()
    if without.all() or not without.any():
        return None
    row = int(without.argmax())
    return (
        f"no label in {without.sum():,} of {len(table):,} rows, first in row {row + 1} "
        f"('{table['path'].iloc[row]}')"
    )


def check_complete(table: pd.DataFrame, source: str) -> None:
    """Raises :class:`UserError` for rows without a label between rows with one."""
    if missing := missing_labels(table):
        raise UserError(f"{source}: {missing}: give the images a class, or remove them")


def check_consistent(tables: Tables, classes: Sequence[str]) -> None:
    """Raises :class:`UserError` for a file with two labels, in one source or in two.

    Args:
        tables: ``path`` and ``label [N] int64`` of the ID sets by source, rows as in the source.
        classes: position = label.
    """
    parts = [
        table[["path", "label"]].assign(source=source, row=range(1, len(table) + 1))
        for source, table in tables.items()
    ]
    rows = pd.concat(parts).query("label != @UNKNOWN").drop_duplicates(["path", "label"])
    twice = rows[rows.duplicated("path", keep=False)]
    if twice.empty:
        return
    path = twice["path"].iloc[0]
    labels = [
        f"'{classes[label]}' in row {row} of {source}"
        for label, row, source in twice.loc[
            twice["path"] == path, ["label", "row", "source"]
        ].to_numpy()
    ]
    raise UserError(f"'{path}' has two labels: {' and '.join(labels[:2])}: keep one of them")


def require_labels(splits: Splits, sources: Mapping[str, object]) -> None:
    """Raises :class:`UserError` unless ``train`` and ``val`` can teach and judge a classifier.

    Args:
        splits: the sets.
        sources: where they are read from, if they are read.
    """
    classes = splits["train"].classes
    if len(classes) == 1:
        raise UserError(
            f"{_name('train', sources)} has one class, '{classes[0]}': a classifier tells two or "
            "more apart; a folder of classes holds a sub-folder for each"
        )
    for split in ("train", "val"):
        data = splits[split]
        without = (data.labels == UNKNOWN).numpy()
        if not without.any():
            continue
        columns = {str(c).lower(): c for c in data.table}
        other = next(
            (columns[name] for name in (*CLASS_NAMES, "category") if name in columns), None
        )
        raise UserError(
            f"{_name(split, sources)}: {without.sum():,} of {len(data):,} images have no label, "
            f"such as '{data.table['path'].iloc[int(without.argmax())]}', and nothing can be "
            "learned from them: give a folder with one sub-folder for each class, or a table with "
            "the columns path and label" + (f" (its column '{other}' renamed?)" if other else "")
        )


def _name(split: str, sources: Mapping[str, object]) -> str:
    return f"data.id.{split}={sources[split]}" if split in sources else split
