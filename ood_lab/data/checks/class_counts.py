"""The number of images of each ID class, and of every other label."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from ood_lab.data.dataset import ID_SPLITS, ImageDataset, Splits, targets
from ood_lab.data.sources.label_names import label_columns
from ood_lab.schema.label_codes import LISTS

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
        counts = count_by_class(splits[name])
        table[name] = np.zeros(len(classes), int) if counts is None else counts
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
    return pd.concat(parts, ignore_index=True)[COUNTS] if parts else pd.DataFrame(columns=COUNTS)


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
