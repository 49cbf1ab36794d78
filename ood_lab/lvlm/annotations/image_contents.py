"""What is in every image, and how much of it each category takes up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ood_lab.lvlm.annotations import Annotations
from ood_lab.lvlm.annotations.annotation_table import BOX
from ood_lab.schema.arrays import Bools, Floats, Ints, positions


@dataclass(frozen=True)
class Contents:
    """Categories of N images with the areas of their objects.

    Entries are pairs of an image and a category annotated in it, by image and, within an image, in
    the order in which its annotations name the categories first.

    Attributes:
        categories: the n names.
        present: ``[N, n] bool``.
        starts: ``[N + 1]``: the entries of image ``i`` are ``starts[i]`` to ``starts[i + 1]``.
        codes: category of each entry, ``[E]``.
        areas: of the union of its boxes, pixels, ``[E]``.
        counts: objects, ``[E]``.
    """

    categories: tuple[str, ...]
    present: Bools
    starts: Ints
    codes: Ints
    areas: Floats
    counts: Ints

    def __len__(self) -> int:
        return len(self.present)

    @property
    def rows(self) -> Ints:
        """Image of each entry, ``[E]``."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    def entries(self, row: int) -> slice:
        """The entries of an image."""
        return slice(int(self.starts[row]), int(self.starts[row + 1]))

    def names(self, codes: Sequence[int] | Ints) -> list[str]:
        """Names of categories."""
        return [self.categories[code] for code in codes]


def contents_of(annotations: Annotations) -> Contents:
    """Categories and areas of all images; groups in one box count too."""
    objects = annotations.objects
    ids = annotations.images["image"]
    row, code = positions(ids, objects["image"]), objects["category"].cat.codes
    objects = objects.assign(row=row, code=code).sort_values("row", kind="stable")
    groups = objects.groupby(["row", "code"], sort=False)  # in the order of their first object
    results = groups.size().reset_index(name="size")
    of_image, codes, counts = (results[key].to_numpy(np.int64) for key in ("row", "code", "size"))
    by_group = np.argsort(groups.ngroup().to_numpy(), kind="stable")
    boxes = objects[list(BOX)].to_numpy(np.float64)[by_group]
    present = np.zeros((len(ids), len(annotations.categories)), bool)
    present[of_image, codes] = True
    return Contents(
        annotations.categories,
        present,
        np.searchsorted(of_image, np.arange(len(present) + 1)),
        codes,
        union_areas(boxes, counts),
        counts,
    )


def union_areas(boxes: Floats, counts: Ints) -> Floats:
    """Area of the union of each group of boxes, pixels.

    Args:
        boxes: ``[N, 4]``: left, top, width, height; group after group.
        counts: boxes of each group.
    """
    ends = np.cumsum(counts)
    sizes = boxes[:, 2] * boxes[:, 3]
    results = np.zeros(len(counts))
    ones = counts == 1
    results[ones] = sizes[ends[ones] - 1]
    twos = ends[counts == 2]
    results[counts == 2] = (
        sizes[twos - 2] + sizes[twos - 1] - _overlap(boxes[twos - 2], boxes[twos - 1])
    )
    for group in np.flatnonzero(counts > 2):
        results[group] = _union(boxes[ends[group] - counts[group] : ends[group]])
    return results


def _overlap(first: Floats, second: Floats) -> Floats:
    low = np.maximum(first[:, :2], second[:, :2])
    high = np.minimum(first[:, :2] + first[:, 2:], second[:, :2] + second[:, 2:])
    return np.prod(np.clip(high - low, 0, None), axis=1)


def _union(boxes: Floats) -> float:
    """Area of a union: the cells between all edges, of which some box covers each."""
    low, high = boxes[:, :2], boxes[:, :2] + boxes[:, 2:]
    x, y = (np.unique(np.concatenate([low[:, axis], high[:, axis]])) for axis in (0, 1))
    across = (low[:, :1] <= x[:-1]) & (high[:, :1] >= x[1:])
    down = (low[:, 1:] <= y[:-1]) & (high[:, 1:] >= y[1:])
    covered = (down.T.astype(np.float64) @ across.astype(np.float64)) > 0
    return float(np.diff(y) @ covered @ np.diff(x))


def pair_counts(present: Bools) -> NDArray[np.float32]:
    """Images that have both of two categories, ``[n, n]``, exact below 2^24 images.

    Args:
        present: ``[N, n]``.
    """
    seen = present.astype(np.float32)
    results: NDArray[np.float32] = seen.T @ seen
    return results


def expected(present: Bools, rows: Ints, context: Bools) -> Floats:
    """``P(o | S)`` of every category in some of N images, ``[B, n]``, from all the others.

    Args:
        present: which categories the images have, ``[N, n]``.
        rows: the B images.
        context: the categories ``S`` of each, ``[B, n]``; an object is no context of itself,
            so its own column is ignored.
    """
    both = pair_counts(present).astype(np.float64)
    counts, rest = np.diag(both)[None], max(len(present) - 1, 1)
    times = counts.T - 1

    def given(here: float) -> Floats:
        """``P(o | c)`` at ``[c, o]`` without an image that has ``c``, and ``o`` if ``here`` = 1."""
        prior = (counts - here) / rest
        return np.where(times > 0, (both - here) / np.maximum(times, 1), prior)

    there, weights = present[rows], context.astype(np.float64)
    # Less what an object itself adds.
    absent, shown = (weights @ p - np.diag(p)[None] * weights for p in map(given, (0.0, 1.0)))
    sizes = weights.sum(axis=1, keepdims=True) - weights
    prior = (counts - there) / rest
    return np.where(sizes > 0, np.where(there, shown, absent) / np.maximum(sizes, 1), prior)


@dataclass(frozen=True)
class ImageLabels:
    """What is annotated in N images over a label space of n names.

    Attributes:
        images: ids of the images, ``N``.
        categories: the label space, ``n``.
        present: ``[N, n] bool``, annotated labels.
    """

    images: tuple[int | str, ...]
    categories: tuple[str, ...]
    present: Bools

    @property
    def absent(self) -> Bools:
        """``[N, n] bool``, labels that are not annotated."""
        return ~self.present

    def places(self, pairs: pd.DataFrame) -> tuple[Ints, Ints]:
        """Rows and columns of pairs, ``image, category``; -1 where there is none."""
        return positions(self.images, pairs["image"]), positions(self.categories, pairs["category"])


def labels_of(annotations: Annotations) -> ImageLabels:
    """What the annotations say of each image."""
    images, categories = list(annotations.images["image"]), annotations.categories
    present = np.zeros((len(images), len(categories)), bool)
    rows = positions(images, annotations.objects["image"])
    present[rows, annotations.objects["category"].cat.codes.to_numpy()] = True
    return ImageLabels(tuple(images), categories, present)
