"""Which labels the training images carry."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from ood_lab.data.dataset import ImageDataset


@dataclass(frozen=True)
class Labels:
    """What is known of the training images beside the pixels.

    Attributes:
        classes: names of the ID classes.
        level_sizes: number of labels at each level of the hierarchy, coarse to fine.
        categories: number of categories.
        shapes: number of shape labels.
        attributes: names of the 0/1 attributes.
    """

    classes: tuple[str, ...]
    level_sizes: tuple[int, ...] = ()
    categories: int = 0
    shapes: int = 0
    attributes: tuple[str, ...] = ()

    @classmethod
    def of(cls, data: ImageDataset) -> Labels:
        """Reads the summary off a dataset's table."""
        table = data.table
        columns = [str(c) for c in table]
        return cls(
            classes=tuple(data.classes),
            level_sizes=tuple(_size(table, c) for c in sorted(columns) if c.startswith("level_")),
            categories=_size(table, "category"),
            shapes=_size(table, "shape"),
            attributes=tuple(
                c.removeprefix("attribute_") for c in columns if c.startswith("attribute_")
            ),
        )

    @property
    def has_classes(self) -> bool:
        """True when the ID images are labelled."""
        return bool(self.classes)

    @property
    def has_levels(self) -> bool:
        """True when samples carry ``levels``."""
        return bool(self.level_sizes)

    @property
    def has_category(self) -> bool:
        """True when samples carry ``category``."""
        return self.categories > 0

    @property
    def has_shape(self) -> bool:
        """True when samples carry ``shape``."""
        return self.shapes > 0

    @property
    def has_attributes(self) -> bool:
        """True when samples carry ``attributes``."""
        return bool(self.attributes)


def _size(table: pd.DataFrame, column: str) -> int:
    return int(table[column].max()) + 1 if column in table else 0
