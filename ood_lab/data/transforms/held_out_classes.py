"""Held-out classes: which, their distance to the others, and the sets without them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from ood_lab.common.hints import check_known
from ood_lab.common.random_streams import stream
from ood_lab.data.dataset import UNKNOWN, ImageDataset, Splits
from ood_lab.data.sources.image_files import FileDataset
from ood_lab.data.transforms.few_shot import SomeRows

#: For every class the labels above it, coarse to fine; empty tuples where there is no hierarchy.
Above = list[tuple[int, ...]]


def labels_above(train: ImageDataset) -> Above:
    """The labels above each class, as the columns ``level_<n>`` of the training images say."""
    uppers = _levels(train)[:-1]
    first = train.table[train.table["label"] != UNKNOWN].drop_duplicates("label")
    labels_of = first.set_index("label")[uppers].itertuples(name=None)
    above = {label: tuple(map(int, labels)) for label, *labels in labels_of}
    # A class without an image stands apart from all others.
    return [above.get(c, (UNKNOWN - 1 - c,) * len(uppers)) for c in range(len(train.classes))]


def distances(above: Above, held: Sequence[int]) -> dict[int, int]:
    """How many levels up a held-out class meets the nearest of the remaining ones.

    1 = they share the label right above the class (siblings), 2 = the one above that, ...; one more
    than there are levels above the classes = they share nothing. Without a hierarchy all have 1.
    """
    kept = [above[c] for c in range(len(above)) if c not in held]
    return {c: min((_apart(above[c], other) for other in kept), default=1) for c in held}


def _apart(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    shared = 0
    for a, b in zip(one, other, strict=True):
        if a != b:
            break
        shared += 1
    return len(one) - shared + 1


def choose(above: Above, share: float, seed: int) -> list[int]:
    """A share of the classes by chance, ascending.

    In a hierarchy, as many for each distance as can be: first a whole branch of the coarsest level,
    then of the next one, whose siblings stay, and at last single classes. A distance whose branches
    are all larger than what is left of the share is passed over. At least two classes stay.
    """
    rng = stream(seed, "held-out classes")
    most, depths = max(1, round(share * len(above))), len(above[0]) + 1
    held: set[int] = set()
    for depth in range(depths):
        finer = depths - depth - 1
        branches = defaultdict(list)
        for c, labels in enumerate(above):
            branches[labels[: depth + 1], None if finer else c].append(c)
        groups = list(branches.values())
        groups = [groups[i] for i in rng.permutation(len(groups))]
        per_distance = max(1, (most - len(held)) // (finer + 1))
        taken = 0
        # Those that fit come first; else the smallest, where it leaves one for each other distance.
        for group in sorted(groups, key=lambda g: len(g) if len(g) > per_distance else 0):
            room = per_distance - taken if taken else max(per_distance, most - len(held) - finer)
            if len(group) <= room and _leaves_siblings(above, depth, group, held):
                held.update(group)
                taken += len(group)
    return sorted(held)


def _leaves_siblings(above: Above, depth: int, group: Sequence[int], held: set[int]) -> bool:
    if held & set(group):
        return False
    rest = [c for c in range(len(above)) if c not in held and c not in group]
    return len(rest) >= 2 and any(above[c][:depth] == above[group[0]][:depth] for c in rest)


def named(classes: Sequence[str], names: Sequence[str]) -> list[int]:
    """The labels of classes that the user names, ascending.

    Raises:
        UserError: there is no such class.
    """
    texts = list(map(str, names))
    check_known(texts, classes, "synthetic_ood.held_out names '{name}', which is not a class")
    return sorted({list(classes).index(name) for name in texts})


def without_classes(splits: Splits, held: Sequence[int]) -> dict[str, ImageDataset]:
    """The labelled sets without those classes and without images of no known class.

    The remaining classes are renumbered from 0, as are the labels above them.

    Args:
        splits: ``train`` and other sets with its classes.
        held: labels of the classes.
    """
    train = splits["train"]
    kept = [c for c in range(len(train.classes)) if c not in held]
    classes = [train.classes[c] for c in kept]
    levels = _levels(train)
    rest = train.table[train.table["label"].isin(kept)]
    numbers = {level: sorted(set(rest[level]) - {UNKNOWN}) for level in levels[:-1]}
    numbers |= dict.fromkeys(["label", *levels[-1:]], kept)
    names: dict[str, Sequence[str]] = dict(train.names)
    names |= {level: [train.names_of(level)[i] for i in numbers[level]] for level in levels}
    parts = {}
    for name, data in splits.items():
        rows = np.flatnonzero(data.table["label"].isin(kept))
        table = data.table.iloc[rows].copy()
        for column, old in numbers.items():
            if column in table:
                table[column] = table[column].map(dict(zip(old, range(len(old)), strict=True)))
                table[column] = table[column].fillna(UNKNOWN).astype(np.int64)
        parts[name] = _relabelled(data, rows, table, name, classes, names)
    return parts


def images_of_classes(
    data: ImageDataset, name: str, rows: np.ndarray, levels: Mapping[str, np.ndarray]
) -> ImageDataset:
    """Some rows of a labelled set as an OOD set, the class in the column ``category_name``.

    Args:
        data: the labelled set.
        name: of the OOD set.
        rows: of ``data``.
        levels: columns of levels of shift, for these rows.
    """
    table = data.table.iloc[rows].drop(columns=_levels(data))
    table["category_name"] = [data.classes[label] for label in table["label"]]
    table = table.assign(label=UNKNOWN)
    images = _relabelled(data, rows, table, name, [], dict(data.names))
    images.set_levels(levels)
    return images


def _levels(data: ImageDataset) -> list[str]:
    return sorted(c for c in map(str, data.table) if c.startswith("level_"))


def _relabelled(
    data: ImageDataset,
    rows: np.ndarray,
    table: pd.DataFrame,
    name: str,
    classes: list[str],
    names: Mapping[str, Sequence[str]],
) -> ImageDataset:
    if isinstance(data, FileDataset):  # whose files the check looks at
        return data.of(name, table, classes, names)
    return SomeRows(data, rows.tolist(), table, name, classes, names)
