"""The places of the scenes: what they look like, where things stand, what is expected there.

Places form a tree, from which the semantic level of an object in a place follows: indoors home and
public, outdoors town and country.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from ood_lab.builtin.scenes.drawings import backdrops
from ood_lab.builtin.scenes.drawings.canvas import Canvas
from ood_lab.builtin.scenes.things import ABSTRACT, THINGS, UNFAMILIAR, Spot
from ood_lab.common.files import packaged_table


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
class ScenePlace:
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


def _place(name: str, entry: Mapping[str, Any]) -> ScenePlace:
    """A place of the table."""
    if "paint" in entry:
        paint = partial(Canvas.paint, calls=entry["paint"])
    else:
        paint = vars(backdrops)[name.replace(" ", "_")]
    return ScenePlace(
        entry["group"],
        entry["group"] in ("home", "public"),
        paint,
        tuple(Surface(*surface) for surface in entry["surfaces"]),
        entry["prior"],
    )


PLACES = {
    name: _place(name, entry) for name, entry in packaged_table(__package__, "places.yaml").items()
}


@cache
def level_of(thing: str, place: str) -> int:
    """Semantic level of a thing in a place, 0 to 5; that of a scene is its strangest object's.

    - 0: expected: the place's prior has it.
    - 1: at home next door: in the prior of another place of the same group.
    - 2: out of place: at home in another group on the same side of the door.
    - 3: on the wrong side of the door: at home indoors, found outdoors, or the reverse.
    - 4: unfamiliar: an archaic vessel, at home nowhere, where a familiar thing would stand.
    - 5: no thing at all: an abstract pattern.
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
