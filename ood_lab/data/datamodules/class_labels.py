"""The labels that the training images carry."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from ood_lab.common.errors import UserError
from ood_lab.data.dataset import UNKNOWN, ImageDataset


@dataclass(frozen=True)
class Labels:
    """Everything that is known of the training images except the pixels.

    Attributes:
        classes: names of the ID classes.
        level_names: names of the labels at each level of the hierarchy, coarse to fine.
        parents: for every level but the coarsest, the parent of each label.
        category_names: names of the categories.
        shapes: number of shape labels.
        attributes: names of the 0/1 attributes.
    """

    classes: tuple[str, ...]
    level_names: tuple[tuple[str, ...], ...] = ()
    parents: tuple[tuple[int, ...], ...] = ()
    category_names: tuple[str, ...] = ()
    shapes: int = 0
    attributes: tuple[str, ...] = ()

    @classmethod
    def of(cls, data: ImageDataset) -> Labels:
        """Reads the summary off a dataset's table.

        Raises:
            UserError: a label of one level has two parents at the level above, or none.
        """
        columns = [str(c) for c in data.table]
        levels = sorted(c for c in columns if c.startswith("level_"))
        return cls(
            classes=tuple(data.classes),
            level_names=tuple(data.names_of(c) for c in levels),
            parents=tuple(_parents(data, up, low) for up, low in itertools.pairwise(levels)),
            category_names=data.names_of("category"),
            shapes=len(data.names_of("shape")),
            attributes=tuple(
                c.removeprefix("attribute_") for c in columns if c.startswith("attribute_")
            ),
        )

    def plain(self) -> dict[str, Any]:
        """Sizes and hierarchy as plain numbers and lists, for the network's heads."""
        return {
            "level_sizes": list(self.level_sizes),
            "parents": [list(level) for level in self.parents],
            "categories": self.categories,
            "shapes": self.shapes,
            "attributes": len(self.attributes),
        }

    @property
    def level_sizes(self) -> tuple[int, ...]:
        """Number of labels at each level, coarse to fine."""
        return tuple(map(len, self.level_names))

    @property
    def categories(self) -> int:
        """Number of categories."""
        return len(self.category_names)

    @property
    def has_levels(self) -> bool:
        """True when samples carry ``levels``."""
        return bool(self.level_sizes)

    @property
    def has_category(self) -> bool:
        """True when samples carry ``category``."""
        return self.categories > 0


def _parents(data: ImageDataset, upper: str, lower: str) -> tuple[int, ...]:
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
    return tuple(parents)
