"""Subsets of images by class: few-shot training sets, validation and test splits."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import pandas as pd
from PIL import Image

from ood_lab.common.errors import UserError
from ood_lab.common.file_records import text_sha256
from ood_lab.data.dataset import UNKNOWN, ImageDataset, ValueNames
from ood_lab.data.sources.image_files import FileDataset

#: ``shots`` that stands for every image.
ALL = -1


class SomeRows(ImageDataset):
    """Some rows of another dataset, renumbered from 0, perhaps under other labels.

    Args:
        data: the images.
        rows: of ``data``.
        table: of these rows.
        name: see :class:`ImageDataset`, like all that follow.
        classes: names of the classes.
        names: names of the values of columns.
    """

    def __init__(
        self,
        data: ImageDataset,
        rows: Sequence[int],
        table: pd.DataFrame,
        name: str,
        classes: list[str],
        names: ValueNames,
    ) -> None:
        self.data = data
        self.rows = list(rows)
        columns = [c for c in map(str, table) if c == "label" or c.startswith("level_")]
        text = f"{data.identity}\0{self.rows}\0{classes}\0{table[columns].to_csv(index=False)}"
        super().__init__(name, table, classes, text_sha256(text), names)

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
    if shots < 1 or shots % 1:
        raise UserError(
            f"data.shots={shots}: give a whole number of at least 1, or {ALL} for all images"
        )
    labels, paths = data.table["label"].to_numpy(), data.table["path"].to_numpy(str)
    if not (labels != UNKNOWN).any():
        raise UserError(f"data.shots={shots} needs class labels, and no training image has one")
    if seed is None:
        seed = int(os.environ.get("PL_GLOBAL_SEED", 0))  # as seed_everything leaves it
    groups = np.arange(len(data)) if data.groups is None else data.groups.numpy()
    rows = []
    for label in np.unique(labels[labels != UNKNOWN]):
        of_label = np.flatnonzero(labels == label)
        names = pd.unique(groups[of_label[np.argsort(paths[of_label], kind="stable")]])
        chosen = np.random.default_rng([seed, int(label)]).permutation(names)[:shots]
        rows.append(of_label[np.isin(groups[of_label], chosen)])
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
    return relabelled(data, rows, data.table.iloc[rows], data.name, data.classes, data.names)


def relabelled(
    data: ImageDataset,
    rows: np.ndarray,
    table: pd.DataFrame,
    name: str,
    classes: list[str],
    names: ValueNames,
) -> ImageDataset:
    """Some rows of a dataset, see :class:`SomeRows`; those of files stay files."""
    if isinstance(data, FileDataset):  # whose files the check looks at
        return data.of(name, table, classes, names)
    return SomeRows(data, rows.tolist(), table, name, classes, names)


#: Images below which a larger share becomes test: intervals rest on their number.
_FEW = 2000


def default_shares(images: int) -> tuple[float, float, float]:
    """Shares of train, val and test for so many images: 30% test below 2,000, else 10%."""
    return (0.6, 0.1, 0.3) if images < _FEW else (0.8, 0.1, 0.1)


def check_shares(shares: Sequence[float]) -> None:
    """Raises :class:`UserError` unless they are three, of train, val and test, with sum 1."""
    if len(shares) != 3 or abs(sum(shares) - 1) > 1e-6:
        raise UserError(f"data.split={shares}: give the shares of train, val, test, sum 1")


def stratified_split(
    labels: np.ndarray, fractions: Sequence[float], seed: int, groups: np.ndarray | None = None
) -> list[np.ndarray]:
    """Divides rows into parts with the same share of every label.

    Where images belong together, groups are divided, and each goes into one part as a whole. Each
    label's rows are shuffled by ``default_rng([seed, label])`` and cut at the rounded
    fractions, so the parts of one class do not depend on the other classes. A part never takes
    the last row of a class from the first part.

    Args:
        labels: ``[N] int64``; -1 (unknown) is treated as one more class.
        fractions: share of the second, third, ... part; the first part keeps the rest.
        seed: the same seed gives the same parts on every machine.
        groups: ``[N]``, equal for rows of one group; None = each row is its own.

    Returns:
        Sorted row numbers of the first part and of one part a fraction.

    Raises:
        UserError: the fractions leave nothing, or a part stays empty.
    """
    if any(f <= 0 for f in fractions) or sum(fractions) >= 1:
        raise UserError(f"data.split: shares {list(fractions)} of train must be > 0 with sum < 1")
    if groups is not None:
        codes, names = pd.factorize(groups)
        of_groups = np.full(len(names), labels.min())
        np.maximum.at(of_groups, codes, labels)
        divided = stratified_split(of_groups, fractions, seed)
        return [np.flatnonzero(np.isin(codes, part)) for part in divided]
    parts: list[list[np.ndarray]] = [[] for _ in range(len(fractions) + 1)]
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        size = len(rows)
        rows = np.random.default_rng([seed, int(label) + 1]).permutation(rows)
        for part, fraction in enumerate(fractions, start=1):
            count = min(max(1, round(fraction * size)), len(rows) - 1)
            parts[part].append(rows[:count])
            rows = rows[count:]
        parts[0].append(rows)
    chosen = [np.sort(np.concatenate(rows)) for rows in parts]
    if any(len(rows) == 0 for rows in chosen):
        raise UserError(
            f"{len(labels):,} images or groups cannot be split: give val and test their own "
            "folders (data.id.val=DIR data.id.test=DIR)"
        )
    return chosen
