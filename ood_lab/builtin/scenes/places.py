"""The places of the scenes: what they look like, where things stand, what is expected there.

Places form a tree, from which the semantic level of an object in a place follows (see
``levels.py``): indoors: home, public; outdoors: town, country.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ood_lab.builtin.scenes.drawings import backdrops
from ood_lab.builtin.scenes.drawings.canvas import Canvas
from ood_lab.builtin.scenes.things import Spot


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


def _prior(text: str) -> dict[str, float]:
    """``3 mug, 1.5 wine glass`` → weights by name."""
    weights = {}
    for entry in text.split(", "):
        weight, name = entry.split(" ", 1)
        weights[name] = float(weight)
    return weights


_WALL = Surface("wall", 0.02, 0.98, 0.25, 0.5)
_SKY = Surface("sky", 0.0, 1.0, 0.14, 0.45)

PLACES: dict[str, Place] = {
    "kitchen": Place(
        "home",
        True,
        backdrops.kitchen,
        (_top(0.0, 1.0, 0.58), _floor(0.89), _WALL),
        _prior(
            "3 mug, 3 bowl, 3 teapot, 2 bottle, 2 wine glass, 2 apple, 1 stool, 0.7 clock, "
            "0.7 fish, 0.7 cat"
        ),
    ),
    "living room": Place(
        "home",
        True,
        backdrops.living_room,
        (_top(0.56, 0.99, 0.585, 0.02), _top(0.08, 0.46, 0.6, 0.05), _floor(0.74), _WALL),
        _prior(
            "2 television, 2 lamp, 2 book, 1.5 guitar, 2 cat, 1.5 candle, 2 wine glass, "
            "1 clock, 1.5 chair, 1 mug, 1 teapot"
        ),
    ),
    "bedroom": Place(
        "home",
        True,
        backdrops.bedroom,
        (_top(0.08, 0.66, 0.62, 0.08), _top(0.74, 0.98, 0.61, 0.02), _floor(0.88), _WALL),
        _prior(
            "2.5 lamp, 2 book, 2 cat, 1 candle, 1 television, 1.5 suitcase, 1.5 clock, "
            "1.5 chair, 1 guitar"
        ),
    ),
    "bathroom": Place(
        "home",
        True,
        backdrops.bathroom,
        (_top(0.04, 0.64, 0.595, 0.02), _top(0.68, 0.98, 0.445, 0.02), _floor(0.88), _WALL),
        _prior("2.5 bucket, 2 stool, 2.5 bottle, 1.5 candle, 0.7 fish, 1 bowl, 0.7 cat"),
    ),
    "classroom": Place(
        "public",
        True,
        backdrops.classroom,
        (_top(0.04, 0.96, 0.61), _floor(0.88), _WALL),
        _prior("3 book, 2.5 chair, 2 clock, 2 bell, 1.5 apple, 2.5 person, 1 guitar, 1 television"),
    ),
    "workshop": Place(
        "public",
        True,
        backdrops.workshop,
        (_top(0.0, 1.0, 0.62, 0.04), _top(0.08, 0.92, 0.345, 0.02), _floor(0.89)),
        _prior("3 axe, 2 ladder, 2.5 bucket, 2 stool, 2 bicycle, 1 bell, 1 lamp, 1 mug, 1 person"),
    ),
    "station": Place(
        "public",
        True,
        backdrops.station,
        (_floor(0.74), _WALL),
        _prior("4 suitcase, 4 person, 2 clock, 2 umbrella, 1 bicycle, 1 bell, 0.7 dog, 0.7 book"),
    ),
    "street": Place(
        "town",
        False,
        backdrops.street,
        (_floor(0.66), _SKY),
        _prior("4 car, 2.5 bicycle, 3.5 traffic light, 3 person, 1.5 umbrella, 1.5 dog, 1 bird"),
    ),
    "park": Place(
        "town",
        False,
        backdrops.park,
        (_floor(0.6), _SKY),
        _prior(
            "3 tree, 2 dog, 2 person, 2 ball, 2 kite, 1.5 bird, 1.5 bicycle, 1 butterfly, 1 flower"
        ),
    ),
    "garden": Place(
        "town",
        False,
        backdrops.garden,
        (_floor(0.66), _SKY),
        _prior(
            "3.5 flower, 2.5 butterfly, 1.5 tree, 1.5 bird, 1.5 bucket, 1 cat, 1 ladder, "
            "1 apple, 1 mushroom, 0.7 ball"
        ),
    ),
    "forest": Place(
        "country",
        False,
        backdrops.forest,
        (_floor(0.66), _SKY),
        _prior("3.5 tree, 3 mushroom, 1.5 axe, 2 bird, 1.5 tent, 1 butterfly, 0.7 dog, 0.7 flower"),
    ),
    "farm": Place(
        "country",
        False,
        backdrops.farm,
        (_floor(0.6), _SKY),
        _prior(
            "3 house, 2 tree, 2 dog, 2 bird, 1.5 bucket, 1.5 ladder, 1.5 person, 1.5 apple, "
            "1 axe, 1 car"
        ),
    ),
    "beach": Place(
        "country",
        False,
        backdrops.beach,
        (_floor(0.68), Surface("water", 0.0, 1.0, 0.5, 0.6), _SKY),
        _prior(
            "3 ball, 3 umbrella, 2 boat, 2 person, 2 kite, 1.5 bucket, 1 fish, 0.7 dog, 0.7 guitar"
        ),
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
        _prior("3 tent, 2 house, 2 tree, 1.5 person, 2 bird, 1 dog, 1 flower, 1 kite"),
    ),
}
