"""A few training images of each class."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from PIL import Image

from ood_lab.common.errors import UserError
from ood_lab.data.dataset import UNKNOWN, ImageDataset
from ood_lab.data.sources.image_files import FileDataset

#: ``shots`` that stands for every image.
ALL = -1


class SomeRows(ImageDataset):
    """Some rows of another dataset, renumbered from 0, perhaps under other labels.

    Args:
        data: the images.
        rows: of ``data``.
        table: of these rows; None = as it was. So are the others.
        name: see :class:`ImageDataset`, like all that follow.
        classes: names of the classes.
        names: names of the values of columns.
    """

    def __init__(
        self,
        data: ImageDataset,
        rows: Sequence[int],
        table: pd.DataFrame | None = None,
        name: str | None = None,
        classes: Sequence[str] | None = None,
        names: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.data = data
        self.rows = list(rows)
        table = data.table.iloc[self.rows] if table is None else table
        classes = list(data.classes if classes is None else classes)
        columns = [c for c in map(str, table) if c == "label" or c.startswith("level_")]
        text = f"{data.identity}\0{self.rows}\0{classes}\0{table[columns].to_csv(index=False)}"
        identity = hashlib.sha256(text.encode()).hexdigest()
        names = data.names if names is None else names
        super().__init__(name or data.name, table, classes, identity, names)

    def load_image(self, index: int) -> Image.Image:
        """Returns row ``index`` of these as an RGB PIL image."""
        return self.data.load_image(self.rows[index])

    def load_mask(self, index: int) -> np.ndarray | None:
        """Returns the mask of row ``index`` of these, where the images have masks."""
        return self.data.load_mask(self.rows[index])


def few_shot(data: ImageDataset, shots: int, seed: int | None = None) -> ImageDataset:
    """``shots`` images of each class, all of a class that has fewer; images without a class go.

    The images of a class, sorted by path, are shuffled by ``default_rng([seed, label])`` and the
    first are taken: the order of a list does not matter, a class does not depend on the others,
    and with one seed fewer shots are a part of more. Where images belong together, so many groups
    are taken, with all their images.

    Args:
        data: labelled images.
        shots: from 1, or -1 for all.
        seed: None = that of the job, so that runs of different seeds see different images.

    Raises:
        UserError: ``shots`` is something else, or there are no labels.
    """
    if shots == ALL:
        return data
    if isinstance(shots, bool) or not isinstance(shots, int) or shots < 1:
        raise UserError(
            f"data.shots={shots}: give a whole number of at least 1, or {ALL} for all images"
        )
    labels, paths = data.table["label"].to_numpy(), data.table["path"].to_numpy(str)
    if not (labels != UNKNOWN).any():
        raise UserError(f"data.shots={shots} needs class labels, and no training image has one")
    if seed is None:
        seed = int(os.environ.get("PL_GLOBAL_SEED", 0))  # as seed_everything leaves it
    groups = np.arange(len(data)) if data.groups is None else data.groups.numpy()
    rows = [
        _draw(np.flatnonzero(labels == label), paths, groups, shots, [seed, int(label)])
        for label in np.unique(labels[labels != UNKNOWN])
    ]
    return only_rows(data, np.sort(np.concatenate(rows)))


def even_rows(length: int, n: int) -> np.ndarray:
    """``n`` of ``length`` rows at equal steps, so of all parts of a table; all of a shorter one."""
    if length <= n:
        return np.arange(length)
    return np.linspace(0, length - 1, n).round().astype(int)


def only_rows(data: ImageDataset, rows: np.ndarray) -> ImageDataset:
    """The images of the given rows (ascending), renumbered and with their own identity."""
    if len(rows) == len(data):
        return data
    if isinstance(data, FileDataset):
        return data.without(np.setdiff1d(np.arange(len(data)), rows).tolist())
    return SomeRows(data, rows.tolist())


def _draw(
    rows: np.ndarray, paths: np.ndarray, groups: np.ndarray, shots: int, seed: list[int]
) -> np.ndarray:
    by_path = rows[np.argsort(paths[rows], kind="stable")]
    names = pd.unique(groups[by_path])
    chosen = np.random.default_rng(seed).permutation(names)[:shots]
    return rows[np.isin(groups[rows], chosen)]
