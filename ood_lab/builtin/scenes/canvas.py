"""A square to paint a place on, in fractions of its side: x to the right, y downwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ood_lab.builtin.vessels.drawings.backgrounds import rgb, smooth
from ood_lab.builtin.vessels.drawings.signed_distances import Array
from ood_lab.common.random_streams import RandomStream
from ood_lab.schema.arrays import Bools

Colour = tuple[float, float, float]


_SKY_HIGH, _SKY_LOW = (0.45, 0.68, 0.93), (0.80, 0.90, 0.97)
_FRAME = (0.95, 0.95, 0.93)


def steps(start: float, stop: float, step: float) -> list[float]:
    """``start``, ``start + step``, ... below ``stop``."""
    values: list[float] = np.arange(start, stop, step).tolist()
    return values


@lru_cache(maxsize=8)
def _axis(size: int) -> Array:
    return ((np.arange(size) + 0.5) / size).astype(np.float32)


@dataclass
class Canvas:
    """The backdrop of one scene while it is painted.

    Args:
        size: height and width in pixels.
        lift: added to every y but the borders 0 and 1, so that places differ a little.
        tint: multiplies all colours, ``[3, 1, 1]``.
        rng: of the textures.

    Attributes:
        image: ``[3, size, size]``.
    """

    size: int
    lift: float
    tint: Array
    rng: RandomStream

    def __post_init__(self) -> None:
        self.image = np.zeros((3, self.size, self.size), np.float32)

    @property
    def x(self) -> Array:
        """Horizontal position of every column, ``[size]``."""
        return _axis(self.size)

    @property
    def y(self) -> Array:
        """Vertical position of every row before the lift, ``[size, 1]``."""
        return _axis(self.size)[:, None] - np.float32(self.lift)

    def row(self, y: float) -> int:
        """The pixel row at ``y``."""
        lifted = y if y in (0.0, 1.0) else y + self.lift
        return round(min(max(lifted, 0.0), 1.0) * self.size)

    def rect(self, left: float, top: float, right: float, bottom: float, colour: Colour) -> None:
        """Fills a rectangle."""
        columns = slice(round(left * self.size), round(right * self.size))
        self.image[:, self.row(top) : self.row(bottom), columns] = self._of(colour)

    def band(self, top: float, bottom: float, colour: Colour, rough: float = 0.0) -> None:
        """Fills the full width, with relative variations of brightness up to ``rough`` / 2."""
        self.rect(0.0, top, 1.0, bottom, colour)
        if rough:
            rows = slice(self.row(top), self.row(bottom))
            noise = smooth(self.rng, 14, size=self.size)[rows]
            self.image[:, rows] *= 1.0 - rough / 2 + rough * noise

    def fade(self, top: float, bottom: float, upper: Colour, lower: Colour) -> None:
        """Fills the full width with a vertical gradient."""
        first, last = self.row(top), self.row(bottom)
        share = np.linspace(0.0, 1.0, max(last - first, 1), dtype=np.float32)[None, :, None]
        start, end = self._of(upper), self._of(lower)
        self.image[:, first:last] = start + share[:, : last - first] * (end - start)

    def lines(self, tops: list[float], thick: float, shade: float) -> None:
        """Multiplies horizontal lines of the full width by ``shade``."""
        for top in tops:
            first = self.row(top)
            self.image[:, first : first + max(1, round(thick * self.size))] *= shade

    def posts(
        self, lefts: list[float], thick: float, top: float, bottom: float, shade: float
    ) -> None:
        """Multiplies vertical lines by ``shade``."""
        rows = slice(self.row(top), self.row(bottom))
        for left in lefts:
            first = round(left * self.size)
            self.image[:, rows, first : first + max(1, round(thick * self.size))] *= shade

    def rects(
        self, lefts: list[float], wide: float, top: float, bottom: float, colour: Colour
    ) -> None:
        """Fills rectangles of one width and height."""
        for left in lefts:
            self.rect(left, top, left + wide, bottom, colour)

    def window(self, left: float, top: float, right: float, bottom: float) -> None:
        """A window with a bar in the middle."""
        self.rect(left - 0.02, top - 0.02, right + 0.02, bottom + 0.02, _FRAME)
        self.rect(left, top, right, bottom, _SKY_LOW)
        middle = (left + right) / 2
        self.rect(middle - 0.01, top, middle + 0.01, bottom, _FRAME)

    def sky(self, horizon: float) -> None:
        """The sky down to the horizon."""
        self.fade(0.0, horizon, _SKY_HIGH, _SKY_LOW)

    def hills(self, base: float, height: float, waves: float, colour: Colour) -> None:
        """A wavy silhouette above ``base``."""
        phase = self.rng.uniform(0.0, 6.0)
        crest = base - height * (0.55 + 0.45 * np.sin(waves * self.x + phase))
        self.where((self.y > crest) & (self.y < base), colour)

    def paint(self, calls: Sequence[Sequence[Any]]) -> None:
        """Calls methods of this class, each with its arguments; ``{from, to, by}`` are steps."""
        for name, *arguments in calls:
            getattr(self, name)(*(_read(argument) for argument in arguments))

    def where(self, inside: Bools, colour: Colour) -> None:
        """Fills ``inside [size, size] bool``."""
        np.copyto(self.image, self._of(colour), where=inside)

    def _of(self, colour: Colour) -> Array:
        return rgb(*colour) * self.tint


def _read(argument: Any) -> Any:
    if isinstance(argument, dict):
        return steps(argument["from"], argument["to"], argument["by"])
    return argument
