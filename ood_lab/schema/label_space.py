"""Sizes of the label sets of the training images, for the heads of a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class LabelSpace:
    """Sizes of the label sets and the hierarchy of the classes.

    Attributes:
        classes: number of ID classes C; they are the finest level.
        level_sizes: labels at each level, coarse to fine, the last one C; empty = no hierarchy.
        parents: for every level but the coarsest, the parent (index at the level above) of each
            label.
        categories: number of categories, independent of the hierarchy; 0 = none.
        shapes: number of shapes; 0 = none.
        attributes: number of 0/1 characteristics; 0 = none.
    """

    classes: int
    level_sizes: Sequence[int] = ()
    parents: Sequence[Sequence[int]] = ()
    categories: int = 0
    shapes: int = 0
    attributes: int = 0
