"""What the drawers return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ood_lab.builtin.vessels.drawings.signed_distances import Array

#: Three free proportions of an undated object, each in [-1, 1].
Proportions = tuple[float, float, float]


@dataclass(frozen=True)
class Figure:
    """The outline of an object and the place of its ornament, in local units.

    Attributes:
        solid: distance to the object, ``[H, W]``.
        belt_area: distance to the part that carries the ornament, ``[H, W]``.
        belt_bottom: lower edge of the ornament.
        belt_height: height of the ornament; 0 = blotches over the whole surface instead.
        half_width: half the width over which the ornament repeats.
    """

    solid: Array
    belt_area: Array
    belt_bottom: float
    belt_height: float
    half_width: float = 0.6


Drawer = Callable[[Array, Array, Proportions], Figure]
