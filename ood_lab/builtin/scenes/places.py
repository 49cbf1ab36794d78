"""The places of the scenes: what they look like, where things stand, what is expected there.

Places form a tree, from which the semantic level of an object in a place follows (see
``levels.py``): indoors: home, public; outdoors: town, country.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ood_lab.builtin.scenes.drawings import backdrops
from ood_lab.builtin.scenes.drawings.canvas import Canvas
from ood_lab.builtin.scenes.things import Spot
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


def _place(name: str, entry: Mapping[str, Any]) -> Place:
    """A place of the table."""
    if "paint" in entry:
        paint = partial(Canvas.paint, calls=entry["paint"])
    else:
        paint = vars(backdrops)[name.replace(" ", "_")]
    return Place(
        entry["group"],
        entry["group"] in ("home", "public"),
        paint,
        tuple(Surface(*surface) for surface in entry["surfaces"]),
        {thing: float(weight) for thing, weight in entry["prior"].items()},
    )


PLACES = {
    name: _place(name, entry) for name, entry in packaged_table(__package__, "places.yaml").items()
}
