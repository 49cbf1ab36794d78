"""Synthetic OOD sets of controlled shift, made of the ID data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from annotated_types import Interval

from ood_lab.common.arguments import Count, InnerShare, Seed, check_values
from ood_lab.common.english import counted, first_of
from ood_lab.common.errors import UserError
from ood_lab.common.grouping import with_keys, without_keys
from ood_lab.common.hints import check_known
from ood_lab.common.random_streams import stream
from ood_lab.data.dataset import UNKNOWN, ImageDataset, ImageSets, Splits, columns_with
from ood_lab.data.transforms.corruptions import CORRUPTIONS, PLAN, SEVERITIES, CorruptedImages
from ood_lab.data.transforms.subsets import relabelled
from ood_lab.schema.arrays import positions
from ood_lab.schema.image_columns import LEVELS, MADE_OF

SEMANTIC, COVARIATE = LEVELS
#: Classes that a note names at most.
_SHOWN = 12
Kind = Literal["corruptions", "held_out_classes", "both"]
Severity = Annotated[int, Interval(ge=SEVERITIES[0], le=SEVERITIES[-1])]


@dataclass(frozen=True, kw_only=True)
class SyntheticOOD:
    """OOD sets of known levels of shift, made of the ID test images.

    - ``corruptions``: the set ``corrupted``, the ID test images under common corruptions; covariate
      level = severity.
    - ``held_out_classes``: the set ``held_out``, the ID test images of classes held out of
      train, val and test; in a hierarchy, semantic level = distance to the remaining classes, see
      :func:`~ood_lab.data.transforms.synthetic_ood.distances`.
    - ``both``: the set ``synthetic_ood``, all pairs of these levels but (0, 0).

    A set with only one level has no column of levels.

    Args:
        kind: which of these.
        corruptions: names of them, spread evenly over the images; None = all 15.
        severities: one level each.
        size: larger images are reduced to so many pixels on the shorter side before they are
            corrupted: the published strengths are for 224.
        held_out: names of the classes; None = a share of them by chance.
        share: of the classes that is held out; in a hierarchy for all distances together.
        images: of each level, or cell, at most; drawn by chance.
        by_set: instead of one set with levels, one set a level, ordered by increasing shift:
            ``corrupted_1``, ..., ``held_out_1``, ...
        seed: of everything that is drawn.

    Raises:
        UserError: there is no such corruption or severity.
    """

    kind: Kind
    corruptions: Sequence[str] | None = None
    severities: Sequence[Severity] = SEVERITIES
    size: Annotated[int, Interval(ge=32, le=8192)] = 256
    held_out: Sequence[str] | None = None
    share: InnerShare = 0.3
    images: Count = 1000
    by_set: bool = False
    seed: Seed = 0

    def __post_init__(self) -> None:
        check_values(SyntheticOOD, vars(self), "synthetic_ood")
        check_known(self.corruptions or (), CORRUPTIONS, "synthetic_ood.corruptions: no '{name}'")
        for key, values in {"corruptions": self._kinds, "severities": self.severities}.items():
            if not values or len(set(values)) < len(values):
                problem = f"synthetic_ood.{key}={list(values)}"
                raise UserError(f"{problem}: give at least one, and none twice")

    @property
    def _kinds(self) -> list[str]:
        return list(CORRUPTIONS if self.corruptions is None else self.corruptions)

    @property
    def names(self) -> list[str]:
        """The sets that :meth:`corrupt` adds."""
        if self.kind == "held_out_classes":
            return []
        if self.kind == "both":
            return ["synthetic_ood"]
        if self.by_set:
            return [f"corrupted_{severity}" for severity in sorted(self.severities)]
        return ["corrupted"]

    def order(self, splits: Iterable[str]) -> list[str]:
        """The made sets ordered by increasing shift, where each has one level."""
        if not self.by_set:
            return []
        return [name for name in splits if name.startswith("held_out_")] + self.names

    def hold_out(self, splits: Splits, labelled: Sequence[str]) -> tuple[ImageSets, list[str]]:
        """Takes the held-out classes out of the labelled sets, and adds their test images.

        Args:
            splits: all sets, nothing done to them yet.
            labelled: names of those with the ID classes.

        Returns:
            The sets, and what the user should know.

        Raises:
            UserError: there is no ID test set, the classes have no names, one of them does not
                exist, fewer than two would stay, or no test image shows a held-out one.
        """
        if "test" not in splits:
            raise UserError(
                f"synthetic_ood={self.kind} makes OOD sets of ID test, and there is none"
            )
        _check_free(self.names, splits)
        if self.kind == "corruptions":
            return dict(splits), []
        classes, test = splits["train"].classes, splits["test"]
        if not classes:
            raise UserError(f"synthetic_ood={self.kind} holds out classes, and ID has no labels")
        above = labels_above(splits["train"])
        if self.held_out is None:
            held = choose(above, self.share, self.seed)
        else:
            texts = list(map(str, self.held_out))
            wrong = "synthetic_ood.held_out names '{name}', which is not a class"
            check_known(texts, classes, wrong)
            held = sorted({classes.index(name) for name in texts})
        stay = len(classes) - len(held)
        if not held or stay < 2:
            raise UserError(
                f"synthetic_ood={self.kind} would hold out {len(held)} of "
                f"{counted(len(classes), 'class')}"
                f" and leave {stay}: hold out at least one, and leave two"
            )
        distance_of = distances(above, held)
        sets = self._held_out_sets(test, distance_of)
        _check_free(sets, splits)
        parts = with_keys(splits, labelled)
        kept = without_classes(parts, held)
        notes = [
            f"held out {len(held)} of {len(classes)} classes: "
            f"{_listed(classes, distance_of, above)}"
        ]
        for name, data in parts.items():
            if unknown := int((data.labels == UNKNOWN).sum()):
                notes.append(f"{name}: {counted(unknown, 'image')} of no known class left out")
        return {**splits, **kept, **sets}, notes

    def _held_out_sets(self, test: ImageDataset, distance_of: Mapping[int, int]) -> ImageSets:
        distance = test.table["label"].map(distance_of).fillna(0).to_numpy(np.int64)
        levels = sorted(set(distance.tolist()) - {0})
        if not levels:
            raise UserError(f"synthetic_ood={self.kind}: no ID test image shows a held-out class")
        rows = {d: self._some(np.flatnonzero(distance == d), d) for d in levels}
        sets = {f"held_out_{d}": chosen for d, chosen in rows.items()}
        if not (self.by_set and self.kind == "held_out_classes" and len(levels) > 1):
            sets = {"held_out": np.sort(np.concatenate(list(rows.values())))}
        of_levels = len(sets) == 1 and (len(levels) > 1 or self.kind == "both")
        return {
            name: images_of_classes(
                test, name, chosen, {SEMANTIC: distance[chosen]} if of_levels else {}
            )
            for name, chosen in sets.items()
        }

    def corrupt(self, splits: Splits) -> tuple[ImageSets, list[str]]:
        """Adds the sets :attr:`names`; for ``both``, ``held_out`` becomes a part of it.

        Returns:
            The sets, and what the user should know.
        """
        if self.kind == "held_out_classes":
            return dict(splits), []
        test = splits["test"]
        plan = self._plan(0, self._some(np.arange(len(test)), 0), self.severities)
        kinds, levels = plan["corruption"].nunique(), ", ".join(map(str, sorted(self.severities)))
        sources = [test]
        if self.kind == "both":
            held = splits["held_out"]
            sources.append(held)
            plan = pd.concat([plan, self._plan(1, np.arange(len(held)), (0, *self.severities))])
            plan = plan.reset_index(drop=True)
            semantic = held.table[SEMANTIC].to_numpy(np.int64)
            of_held = (plan["source"] == 1).to_numpy()
            plan[SEMANTIC] = 0
            plan.loc[of_held, SEMANTIC] = semantic[plan.loc[of_held, "row"]]
        plans = [part for _, part in plan.groupby("severity")]
        if self.kind == "both" or not self.by_set:
            several = self.kind == "both" or len(self.severities) > 1
            plans = [plan.assign(**{COVARIATE: plan["severity"]}) if several else plan]
        sets: ImageSets = {
            name: CorruptedImages(name, sources, part, self.seed, self.size)
            for name, part in zip(self.names, plans, strict=True)
        }
        size = counted(sum(map(len, sets.values())), "image")
        photos = len({path for data in sets.values() for path in data.table[MADE_OF]})
        unit = "photograph" if test.groups is None else "group"
        note = (
            f"{', '.join(sets)}: {size} made of {counted(photos, unit)} of ID test, "
            f"severity {levels}, corruptions: {kinds}"
        )
        rest = without_keys(splits, ["held_out"] if self.kind == "both" else [])
        return rest | sets, [note]

    def _plan(self, source: int, rows: np.ndarray, severities: Iterable[int]) -> pd.DataFrame:
        """Every row at every severity, under one corruption, of which each has as many rows."""
        kinds = self._kinds
        order = stream(self.seed, "kinds of corruption", source).permutation(len(rows))
        places = order % len(kinds)
        return pd.DataFrame(
            [
                (source, int(row), kinds[place] if severity else "", severity)
                for severity in sorted(severities)
                for row, place in zip(rows, places, strict=True)
            ],
            columns=list(PLAN),
        )

    def _some(self, rows: np.ndarray, level: int) -> np.ndarray:
        """``images`` of these rows by chance, ascending."""
        order = stream(self.seed, "synthetic_ood images", level).permutation(rows)
        return np.sort(order[: self.images])


def _listed(classes: Sequence[str], distance_of: Mapping[int, int], above: Above) -> str:
    """The first held-out classes, with their distance where there is a hierarchy."""
    tree = bool(above[0])
    names = [f"{classes[c]} ({d})" if tree else classes[c] for c, d in distance_of.items()]
    meaning = "; in brackets: levels up to the nearest class that stays" if tree else ""
    return f"{first_of(names, _SHOWN)}{meaning}"


def _check_free(names: Iterable[str], splits: Splits) -> None:
    for name in names:
        if name in splits:
            raise UserError(
                f"data.ood.{name}: synthetic_ood makes a set of that name; rename yours"
            )


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
    kept = [labels for c, labels in enumerate(above) if c not in held]
    nearest = {}
    for c in held:
        shared = [np.cumprod(np.equal(above[c], labels)).sum() for labels in kept]
        nearest[c] = len(above[c]) + 1 - int(max(shared, default=len(above[c])))
    return nearest


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


def without_classes(splits: Splits, held: Sequence[int]) -> ImageSets:
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
                table[column] = positions(old, table[column])  # -1 where it is none
        parts[name] = relabelled(data, rows, table, name, classes, names)
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
    images = relabelled(data, rows, table, name, [], dict(data.names))
    images.set_levels(levels)
    return images


def _levels(data: ImageDataset) -> list[str]:
    return sorted(columns_with("level_", data.table))
