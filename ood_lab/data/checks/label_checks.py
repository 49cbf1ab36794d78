"""Checks that a classifier can learn from the class labels of the ID images."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.grouping import grouped
from ood_lab.data.dataset import ID_SPLITS, UNKNOWN, ImageDataset, Splits, targets
from ood_lab.data.sources.label_names import label_columns
from ood_lab.schema.image_columns import LISTS
from ood_lab.schema.results import Tables


def check_classes(classes: Sequence[str], source: str) -> None:
    """Raises :class:`UserError` where two classes differ only in upper and lower case.

    Single letters may: they are classes of their own in sets of handwriting.
    """
    for names in grouped((name.casefold(), name) for name in classes).values():
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
        raise UserError(
            f"{_name(split, sources)}: {without.sum():,} of {len(data):,} images have no label, "
            f"such as '{data.table['path'].iloc[int(without.argmax())]}', and nothing can be "
            "learned from them: give a folder with one sub-folder for each class, or a table with "
            "the columns path and label"
        )


def _name(split: str, sources: Mapping[str, object]) -> str:
    return f"data.id.{split}={sources[split]}" if split in sources else split


_ATTRIBUTE = "attribute_"
COUNTS = ["label", "name", "category", "dataset", "images"]


def count_by_class(data: ImageDataset) -> np.ndarray | None:
    """Images of every class of a set, ``[C]``; None where it has no classes."""
    if not data.classes:
        return None
    if LISTS in data.table:
        return targets(data)[0].sum(axis=0)
    labels = data.labels.numpy()
    return np.bincount(labels[labels >= 0], minlength=len(data.classes))


def class_table(splits: Splits) -> pd.DataFrame:
    """One row per ID class, in the order of the labels: ``label, class, train, val, test``.

    Empty where ID has no classes.
    """
    classes = splits["train"].classes
    table = pd.DataFrame({"label": range(len(classes)), "class": classes})
    for name in (n for n in ID_SPLITS if n in splits):
        table[name] = count_by_class(splits[name])
    return table


def count_table(splits: Splits) -> pd.DataFrame:
    """The images of every label by category and dataset, of all sets (arXiv 2412.12683, table 1).

    Returns:
        Columns :data:`COUNTS`; ``label`` is ``class``, ``level_<n>``, ``category``, ``shape``,
        ``attribute`` (a characteristic; an image may have several), or ``folder`` of an OOD set
        with several of them. An unknown name is not counted; an unknown ``category`` is "".
    """
    columns = {str(c) for images in splits.values() for c in images.table}
    labels = sorted(c.removesuffix("_name") for c in columns if c.endswith("_name"))
    parts = [
        counts.assign(dataset=dataset)
        for dataset, images in splits.items()
        for counts in _counts(images, labels)
    ]
    return pd.concat(parts, ignore_index=True)[COUNTS]


def _counts(images: ImageDataset, labels: Sequence[str]) -> Iterator[pd.DataFrame]:
    table = images.table
    category = _names(images, "category")
    named = [c for c in label_columns(table) if not c.startswith((_ATTRIBUTE, LISTS))]
    rows = {label: _names(images, label) for label in dict.fromkeys(["class", *labels, *named])}
    if not images.classes and "path" in table:
        folders = table["path"].astype(str).str.rsplit("/", n=2).str[-2]
        rows |= {"folder": folders} if folders.nunique() > 1 else {}
    if LISTS in table:
        rows["class"] = table[LISTS].dropna().map(json.loads).explode().dropna()
    vocabularies = [images.classes, *images.names.values()]
    for label, names in rows.items():
        words_present = names[names != ""]
        words = next(
            (words for words in vocabularies if set(words_present) <= set(words)),
            sorted(set(words_present)),
        )
        yield _sizes(
            label, words_present.astype(pd.CategoricalDtype([*dict.fromkeys(words)])), category
        )
    for column in label_columns(table):
        if column.startswith(_ATTRIBUTE):
            present = table[column] > 0
            names = pd.Series(column.removeprefix(_ATTRIBUTE), table.index)[present]
            yield _sizes("attribute", names, category)


def _sizes(label: str, names: pd.Series, category: pd.Series) -> pd.DataFrame:
    frame = pd.DataFrame({"name": names, "category": category[names.index]})
    groups = frame.groupby(["name", "category"], sort=True, observed=True)
    sizes = groups.size().rename("images").reset_index()
    return sizes.assign(label=label, name=sizes["name"].astype(str))


def _names(images: ImageDataset, label: str) -> pd.Series:
    """The name of every image, "" where it is not known."""
    table = images.table
    names = pd.Series("", table.index, dtype=object)
    column = "label" if label == "class" else label
    if column in table and not pd.api.types.is_numeric_dtype(table[column]):
        names = table[column].fillna("").astype(str)
    elif column in table:
        words = images.classes if label == "class" else images.names_of(label)
        names = table[column].map(dict(enumerate(words))).fillna("")
    if f"{label}_name" in table:
        names = names.where(names != "", table[f"{label}_name"].fillna("").astype(str))
    return names
