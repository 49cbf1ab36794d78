"""Finds room for the objects of a scene: on the right surfaces, and not behind one another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from ood_lab.builtin.scenes.places import PLACES, Surface
from ood_lab.builtin.scenes.scene import SceneObject, Setting
from ood_lab.builtin.scenes.sprite import Look, draw
from ood_lab.builtin.scenes.things import THINGS
from ood_lab.common.errors import UserError
from ood_lab.schema.arrays import Bools

#: Largest share of an object's pixels that others may hide.
MAX_HIDDEN = 0.35
#: Positions that are tried at one size, and the factor by which what must be there then shrinks.
_TRIES, _SHRINK = 10, 0.8
#: Fewest pixels of an object's mask, and shortest longer side of its box.
_LEAST_AREA, SMALLEST = 6, 5


@dataclass
class _Placed:
    """An object, the pixel row below it, its pixels in the image, and those seen so far."""

    item: SceneObject
    foot: int
    mask: Bools
    seen: Bools


@cache
def _surfaces(place: str, thing: str, state: str) -> tuple[Surface, ...]:
    """Those where a thing belongs, the best kind of them, else the floor."""
    surfaces = PLACES[place].surfaces
    for spot in (*THINGS[thing].belongs(state), "floor"):
        fitting = tuple(surface for surface in surfaces if surface.spot == spot)
        if fitting:
            return fitting
    return surfaces


class Layout:
    """Places objects one by one; none of them is ever hidden by more than ``MAX_HIDDEN``.

    What stands lower in the image is nearer and painted later, whatever came first here. Visible
    pixels are counted exactly, on the masks that will be painted.

    Args:
        rng: of the positions.
        place: key of ``PLACES``.
        setting: its circumstances.
        size: height and width of the image, pixels.
    """

    def __init__(self, rng: np.random.Generator, place: str, setting: Setting, size: int) -> None:
        self._rng = rng
        self._place = place
        self._setting = setting
        self._size = size
        self._placed: list[_Placed] = []

    def items(self) -> tuple[SceneObject, ...]:
        """The objects in the order in which they are to be painted."""
        return tuple(placed.item for placed in self._placed)

    def put(self, look: Look, must: bool) -> bool:
        """Finds room for one more object.

        Args:
            look: the object.
            must: it shrinks until it fits; else it is skipped where there is no room.

        Returns:
            Whether it stands in the scene.

        Raises:
            UserError: it must be there, and there is no room even for the smallest.
        """
        look = self._large_enough(look)
        while True:
            for _ in range(_TRIES):
                if self._try(self._somewhere(look)):
                    return True
            if not must:
                return False
            smaller = self._large_enough(replace(look, size=int(look.size * _SHRINK)))
            if smaller.size >= look.size:
                return self._anywhere(smaller)
            look = smaller

    def _large_enough(self, look: Look) -> Look:
        """Thin parts of small things are less than half a pixel: those are drawn larger."""
        while True:
            mask = draw(look).mask
            sides = mask.any(0).sum(), mask.any(1).sum()
            if mask.sum() >= _LEAST_AREA and max(sides) >= SMALLEST:
                return look
            look = replace(look, size=look.size + 1)

    def _somewhere(self, look: Look) -> _Placed:
        """A random position on a surface where the object belongs; large ones nearer."""
        rng, size = self._rng, self._size
        surfaces = _surfaces(self._place, look.thing, look.state)
        near = min(1.0, 2.0 * look.size / size)
        choice, across, depth = rng.random(3).tolist()
        surface = surfaces[int(choice * len(surfaces))]
        depth = 0.55 * near + 0.45 * depth
        foot = surface.top + depth * (surface.bottom - surface.top) + self._setting.lift
        across = surface.left + across * (surface.right - surface.left)
        if self._setting.mirrored:
            across = 1.0 - across
        return self._within(look, across * size, foot * size, surface.spot in ("floor", "top"))

    def _within(self, look: Look, centre: float, foot: float, stands: bool) -> _Placed:
        """The object with its foot at a point, moved as little as keeps it in the image."""
        sprite = draw(look)
        height, width = sprite.mask.shape
        left = min(max(round(centre - width / 2), 0), self._size - width)
        top = min(max(round(foot) - height, 0), self._size - height)
        mask = np.zeros((self._size, self._size), bool)
        mask[top : top + height, left : left + width] = sprite.mask
        item = SceneObject(look, left - sprite.left, top - sprite.top, stands)
        return _Placed(item, top + height, mask, mask)

    def _anywhere(self, look: Look) -> bool:
        """The first free position of a grid, for crowded scenes."""
        step = max(2, look.size // 2)
        for foot in range(self._size, 0, -step):
            for centre in range(0, self._size, step):
                if self._try(self._within(look, centre, foot, stands=True)):
                    return True
        raise UserError(
            f"scenes: no room for one more {look.thing} in an image of {self._size} pixels; "
            "ask for fewer or smaller objects"
        )

    def _try(self, new: _Placed) -> bool:
        """Adds an object unless too much of anything would be hidden."""
        position = sum(other.foot <= new.foot for other in self._placed)
        seen = []
        for number, other in enumerate(self._placed):
            back, front = (other, new) if number < position else (new, other)
            visible = back.seen & ~front.mask
            if visible.sum() < (1.0 - MAX_HIDDEN) * back.mask.sum():
                return False
            if back is new:
                new.seen = visible
            seen.append(visible if back is other else other.seen)
        for other, visible in zip(self._placed, seen, strict=True):
            other.seen = visible
        self._placed.insert(position, new)
        return True
