"""The places of the scenes: what they look like, where things stand, what is expected there.

Places form a tree, from which the semantic level of an object in a place follows (see
:func:`level_of`): indoors: home, public; outdoors: town, country.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from ood_lab.data.scenes import backdrops
from ood_lab.data.scenes.canvas import Canvas
from ood_lab.data.scenes.things import ABSTRACT, FAMILIAR, THINGS, UNFAMILIAR, Spot


@dataclass(frozen=True)
class Surface:
    """A part of a place where things may be: the foot of a thing lies within it.

    Fractions of the image, x to the right, y downwards; a thing hangs in a wall or the sky by
    its foot, too.
    """

    spot: Spot
    left: float
    right: float
    top: float
    bottom: float


@dataclass(frozen=True)
class Place:
    """A kind of place.

    Attributes:
        group: broader kind of place.
        indoors: has a roof.
        paint: its backdrop.
        surfaces: where things may be.
        prior: relative frequency of what is expected there, by name of the thing.
    """

    group: str
    indoors: bool
    paint: Callable[[Canvas], None]
    surfaces: tuple[Surface, ...]
    prior: Mapping[str, float]


def _floor(top: float, bottom: float = 0.98) -> Surface:
    return Surface("floor", 0.0, 1.0, top, bottom)


def _top(left: float, right: float, y: float, depth: float = 0.03) -> Surface:
    return Surface("top", left, right, y, y + depth)


_WALL = Surface("wall", 0.02, 0.98, 0.25, 0.5)
_SKY = Surface("sky", 0.0, 1.0, 0.14, 0.45)

PLACES: dict[str, Place] = {
    "kitchen": Place(
        "home",
        True,
        backdrops.kitchen,
        (_top(0.0, 1.0, 0.58), _floor(0.89), _WALL),
        {
            "mug": 3,
            "bowl": 3,
            "teapot": 2,
            "bottle": 2,
            "wine glass": 1.5,
            "apple": 2,
            "stool": 1,
            "clock": 0.7,
            "fish": 0.7,
            "cat": 0.7,
        },
    ),
    "living room": Place(
        "home",
        True,
        backdrops.living_room,
        (_top(0.56, 0.99, 0.585, 0.02), _top(0.08, 0.46, 0.6, 0.05), _floor(0.74), _WALL),
        {
            "television": 2,
            "lamp": 2,
            "book": 2,
            "guitar": 1.5,
            "cat": 2,
            "candle": 1.5,
            "wine glass": 1.5,
            "clock": 1,
            "chair": 1.5,
            "mug": 1,
        },
    ),
    "bedroom": Place(
        "home",
        True,
        backdrops.bedroom,
        (_top(0.08, 0.66, 0.62, 0.08), _top(0.74, 0.98, 0.61, 0.02), _floor(0.88), _WALL),
        {
            "lamp": 2.5,
            "book": 2,
            "cat": 2,
            "candle": 1,
            "suitcase": 1.5,
            "clock": 1.5,
            "chair": 1.5,
            "guitar": 1,
        },
    ),
    "bathroom": Place(
        "home",
        True,
        backdrops.bathroom,
        (_top(0.04, 0.64, 0.595, 0.02), _top(0.68, 0.98, 0.445, 0.02), _floor(0.88), _WALL),
        {
            "bucket": 2.5,
            "stool": 2,
            "bottle": 2.5,
            "candle": 1.5,
            "fish": 0.7,
            "bowl": 1,
            "cat": 0.7,
        },
    ),
    "classroom": Place(
        "public",
        True,
        backdrops.classroom,
        (_top(0.04, 0.96, 0.61), _floor(0.88), _WALL),
        {
            "book": 3,
            "chair": 2.5,
            "clock": 2,
            "bell": 1.5,
            "apple": 1.5,
            "person": 2.5,
            "guitar": 1,
            "television": 1,
        },
    ),
    "workshop": Place(
        "public",
        True,
        backdrops.workshop,
        (_top(0.0, 1.0, 0.62, 0.04), _top(0.08, 0.92, 0.345, 0.02), _floor(0.89)),
        {
            "axe": 3,
            "ladder": 2,
            "bucket": 2.5,
            "stool": 2,
            "bicycle": 2,
            "bell": 1,
            "lamp": 1,
            "mug": 1,
            "person": 1,
        },
    ),
    "station": Place(
        "public",
        True,
        backdrops.station,
        (_floor(0.74), _WALL),
        {
            "suitcase": 4,
            "person": 4,
            "clock": 2,
            "umbrella": 2,
            "bicycle": 1,
            "bell": 0.7,
            "dog": 0.7,
            "book": 0.7,
        },
    ),
    "street": Place(
        "town",
        False,
        backdrops.street,
        (_floor(0.66), _SKY),
        {
            "car": 4,
            "bicycle": 2.5,
            "traffic light": 3,
            "person": 3,
            "umbrella": 1.5,
            "dog": 1.5,
            "bird": 1,
        },
    ),
    "park": Place(
        "town",
        False,
        backdrops.park,
        (_floor(0.6), _SKY),
        {
            "tree": 3,
            "dog": 2,
            "person": 2,
            "ball": 2,
            "kite": 2,
            "bird": 1.5,
            "bicycle": 1.5,
            "butterfly": 1,
            "flower": 1,
        },
    ),
    "garden": Place(
        "town",
        False,
        backdrops.garden,
        (_floor(0.66), _SKY),
        {
            "flower": 3.5,
            "butterfly": 2.5,
            "tree": 1.5,
            "bird": 1.5,
            "bucket": 1.5,
            "cat": 1,
            "ladder": 1,
            "apple": 1,
            "mushroom": 1,
            "ball": 0.7,
        },
    ),
    "forest": Place(
        "country",
        False,
        backdrops.forest,
        (_floor(0.66), _SKY),
        {
            "tree": 3.5,
            "mushroom": 3,
            "axe": 1.5,
            "bird": 2,
            "tent": 1.5,
            "butterfly": 1,
            "dog": 0.7,
            "flower": 0.7,
        },
    ),
    "farm": Place(
        "country",
        False,
        backdrops.farm,
        (_floor(0.6), _SKY),
        {
            "house": 3,
            "tree": 2,
            "dog": 2,
            "bird": 2,
            "bucket": 1.5,
            "ladder": 1.5,
            "person": 1.5,
            "apple": 1.5,
            "axe": 1,
        },
    ),
    "beach": Place(
        "country",
        False,
        backdrops.beach,
        (_floor(0.68), Surface("water", 0.0, 1.0, 0.5, 0.6), _SKY),
        {
            "ball": 3,
            "umbrella": 3,
            "boat": 2,
            "person": 2,
            "kite": 2,
            "bucket": 1.5,
            "fish": 1,
            "dog": 0.7,
            "guitar": 0.7,
        },
    ),
    "harbour": Place(
        "country",
        False,
        backdrops.harbour,
        (Surface("water", 0.0, 1.0, 0.46, 0.8), _floor(0.88), _SKY),
        {"boat": 4.5, "fish": 3, "bird": 2.5, "house": 1.5, "person": 1, "bell": 0.7},
    ),
    "mountains": Place(
        "country",
        False,
        backdrops.mountains,
        (_floor(0.66), _SKY),
        {
            "tent": 3,
            "house": 2,
            "tree": 2,
            "person": 1.5,
            "bird": 2,
            "dog": 1,
            "flower": 1,
            "kite": 1,
        },
    ),
}
#: Semantic levels of an object in a place, and of a scene: that of its strangest object.
LEVELS = (
    "expected",
    "at home next door",
    "out of place",
    "on the wrong side of the door",
    "unfamiliar",
    "no thing at all",
)


def level_of(thing: str, place: str) -> int:
    """Semantic level of a thing in a place, 0 to 5.

    0: the place's prior has it. Else, if it has a home: 1 in a place of the same group, 2 in
    another group on the same side of the door (indoors, outdoors), 3 on the other side alone.
    4: an archaic vessel, at home nowhere. 5: an abstract pattern.
    """
    if thing in UNFAMILIAR:
        return 4
    if thing in ABSTRACT:
        return 5
    here = PLACES[place]
    homes = [other for other in PLACES.values() if thing in other.prior]
    if thing in here.prior:
        return 0
    if any(home.group == here.group for home in homes):
        return 1
    return 2 if any(home.indoors == here.indoors for home in homes) else 3


@cache
def things_at(place: str, level: int) -> tuple[str, ...]:
    """Things of one semantic level in a place, in the order of ``THINGS``."""
    return tuple(name for name in THINGS if level_of(name, place) == level)


def homeless() -> list[str]:
    """Familiar things that no prior has (there should be none)."""
    return [name for name in FAMILIAR if not any(name in p.prior for p in PLACES.values())]
