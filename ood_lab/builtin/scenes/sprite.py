"""A single object: everything that says how it looks, and its pixels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from ood_lab.builtin.scenes.painted_parts import tones
from ood_lab.builtin.scenes.things import THINGS
from ood_lab.builtin.vessels.drawings.signed_distances import Array, Proportions, square, turned
from ood_lab.schema.arrays import Bools

#: A pixel with less of an object than this is none of its own (ghosts of thin parts).
_FAINT = 0.02


@dataclass(frozen=True)
class Look:
    """How an object looks, wherever it stands.

    Attributes:
        thing: key of ``THINGS``.
        colour: key of ``COLOURS``; empty for a thing of fixed colours.
        state: one of the thing's states; empty if it has none.
        size: side of the square that it is drawn on, pixels.
        angle: lean, radians.
        mirrored: left and right changed.
        proportions: of its drawer.
        tint: difference of its colour from the word's, RGB.
        lamp: horizontal direction of the light, -1 (left) to 1.
    """

    thing: str
    colour: str
    state: str
    size: int
    angle: float = 0.0
    mirrored: bool = False
    proportions: Proportions = (0.0, 0.0, 0.0)
    tint: tuple[float, float, float] = (0.0, 0.0, 0.0)
    lamp: float = -0.4


class Sprite(NamedTuple):
    """The pixels of an object, cropped to where it is; remembered, so nobody may change them.

    Attributes:
        left: columns cut off on the left of its square.
        top: rows cut off at the top.
        alpha: coverage, ``[h, w]``.
        colour: ``[3, h, w]``.
        light: shading, about 1, ``[h, w]``.
        mask: pixels at least half covered, ``[h, w] bool``.
    """

    left: int
    top: int
    alpha: Array
    colour: Array
    light: Array
    mask: Bools


@lru_cache(maxsize=64)
def draw(look: Look) -> Sprite:
    """Draws an object; the last few are remembered, for layout and painting need the same ones.

    Part k has coverage ``c_k = clip(1/2 - d_k * pixels, 0, 1)`` and shows through the later ones
    with the weight ``c_k * prod_{j > k} (1 - c_j)``; the first part colours what is left.
    """
    x, y = square(look.size)
    u, v = turned(x, y, look.angle)
    if look.mirrored:
        u = -u
    parts = THINGS[look.thing].draw(u, v, look.proportions, look.state)
    distances = np.array([part.distance for part in parts])
    solid = distances.min(0)
    # All parts at once, in place, by plain ufuncs: on so few pixels it is the calls that cost.
    cover = distances
    cover *= -look.size / 2
    cover += 0.5
    np.minimum(cover, 1.0, out=cover)
    np.maximum(cover, 0.0, out=cover)
    alpha = cover.max(0)
    rest = np.ones_like(alpha)
    for weight in cover[:0:-1]:
        weight *= rest
        rest -= weight
    cover[0] = rest
    palette = tones(look.colour, look.tint)
    columns = np.array([palette[part.tone] for part in parts], np.float32).T
    colour = (columns @ cover.reshape(len(parts), -1)).reshape((3, *alpha.shape))
    # The cushion of the vessels: dark at the outline, the lamp on one side.
    cushion = np.maximum(np.minimum(solid * -4.5, 1.0), 0.0)
    light = 0.72 + 0.34 * cushion * (2.0 - cushion) + (0.2 * look.lamp) * x
    return _cropped(alpha, colour, light)


def _cropped(alpha: Array, colour: Array, light: Array) -> Sprite:
    rows = (alpha.max(1) > _FAINT).nonzero()[0]
    columns = (alpha.max(0) > _FAINT).nonzero()[0]
    top, left = int(rows[0]), int(columns[0])
    part = (slice(top, int(rows[-1]) + 1), slice(left, int(columns[-1]) + 1))
    colours = colour[(slice(None), *part)]
    return Sprite(left, top, alpha[part], colours, light[part], alpha[part] >= 0.5)


@cache
def extent(thing: str, state: str) -> float:
    """Longer side of a thing's box as a share of the square that it is drawn on."""
    colours = THINGS[thing].colours
    sprite = draw(Look(thing, colours[0] if colours else "", state, 96))
    return max(sprite.mask.any(0).sum(), sprite.mask.any(1).sum()) / 96
