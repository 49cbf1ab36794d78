"""The places of the scenes: what they look like, where things stand, what is expected there.

Places form a tree, from which the semantic level of an object in a place follows: indoors home and
public, outdoors town and country.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from ood_lab.builtin.scenes.canvas import Canvas, steps
from ood_lab.builtin.scenes.things import ABSTRACT, THINGS, UNFAMILIAR, Spot
from ood_lab.common.arguments import Settings
from ood_lab.common.files import packaged_table

_PANE = (0.56, 0.62, 0.68)


def classroom(canvas: Canvas) -> None:
    """Pale wall, a blackboard, a long desk."""
    canvas.band(0.0, 0.74, (0.94, 0.92, 0.84))
    canvas.band(0.74, 1.0, (0.72, 0.66, 0.58))
    canvas.rect(0.10, 0.08, 0.72, 0.46, (0.60, 0.44, 0.30))
    canvas.rect(0.13, 0.11, 0.69, 0.43, (0.20, 0.34, 0.28))
    for top in (0.18, 0.27):
        canvas.rect(0.2, top, 0.2 + canvas.rng.uniform(0.2, 0.4), top + 0.02, (0.62, 0.70, 0.66))
    canvas.rect(0.04, 0.60, 0.96, 0.65, (0.82, 0.66, 0.44))
    canvas.rects([0.10, 0.86], 0.04, 0.65, 0.86, (0.55, 0.55, 0.58))


def station(canvas: Canvas) -> None:
    """A grey hall with an arched window, a train behind the platform."""
    canvas.band(0.0, 0.68, (0.80, 0.81, 0.83))
    x, y = canvas.x - 0.5, canvas.y
    arch = (x * x / 0.12 + (y - 0.34) ** 2 / 0.08 < 1.0) & (y < 0.34)
    canvas.where(arch, (0.90, 0.95, 0.98))
    canvas.posts([0.3, 0.5, 0.7], 0.012, 0.06, 0.34, 0.8)
    canvas.rect(0.0, 0.42, 1.0, 0.64, (0.44, 0.56, 0.60))
    canvas.rects(steps(0.06, 1.0, 0.19), 0.12, 0.46, 0.54, (0.84, 0.90, 0.92))
    canvas.band(0.68, 0.72, (0.88, 0.82, 0.50))
    canvas.band(0.72, 1.0, (0.70, 0.69, 0.68), 0.1)


def street(canvas: Canvas) -> None:
    """Sky, a row of fronts, pavement, asphalt with a broken line."""
    canvas.sky(0.62)
    left = 0.0
    while left < 1.0:
        width, top = canvas.rng.uniform(0.16, 0.3), canvas.rng.uniform(0.16, 0.34)
        shade = canvas.rng.uniform(0.66, 0.84)
        right = min(left + width, 1.0)
        canvas.rect(left, top, right, 0.62, (shade, shade * 0.94, shade * 0.9))
        for y in steps(top + 0.04, 0.54, 0.1):
            canvas.rects(steps(left + 0.03, right - 0.05, 0.08), 0.035, y, y + 0.05, _PANE)
        left = right
    canvas.band(0.62, 0.72, (0.76, 0.75, 0.73))
    canvas.band(0.72, 1.0, (0.46, 0.47, 0.49), 0.12)
    canvas.rects(steps(0.04, 1.0, 0.24), 0.12, 0.85, 0.87, (0.92, 0.92, 0.88))


def park(canvas: Canvas) -> None:
    """Sky, distant trees, a lawn with a path."""
    canvas.sky(0.5)
    canvas.hills(0.5, 0.14, 24.0, (0.44, 0.62, 0.42))
    canvas.band(0.5, 1.0, (0.60, 0.78, 0.42), 0.2)
    path = np.abs(canvas.x - 0.5 - 0.3 * (canvas.y - 0.75)) < 0.06 + 0.5 * (canvas.y - 0.5)
    canvas.where(path & (canvas.y > 0.5), (0.86, 0.80, 0.64))


def forest(canvas: Canvas) -> None:
    """Dusky green with trunks, a brown floor."""
    canvas.band(0.0, 0.62, (0.42, 0.54, 0.40), 0.5)
    for left in steps(canvas.rng.uniform(0.0, 0.1), 1.0, 0.15):
        wide = canvas.rng.uniform(0.03, 0.07)
        canvas.rect(left, 0.0, left + wide, canvas.rng.uniform(0.6, 0.66), (0.42, 0.34, 0.27))
    canvas.band(0.62, 1.0, (0.60, 0.52, 0.38), 0.4)


def mountains(canvas: Canvas) -> None:
    """Snowy peaks above a stony meadow."""
    canvas.sky(0.6)
    x, y = canvas.x, canvas.y
    far, near = canvas.rng.uniform(0.2, 0.4), canvas.rng.uniform(0.62, 0.82)
    ridge = np.minimum(0.1 + 1.0 * np.abs(x - far), 0.18 + 1.1 * np.abs(x - near))
    canvas.where((y > ridge) & (y < 0.6), (0.58, 0.60, 0.66))
    canvas.where((y > ridge) & (y < 0.28 + 0.05 * np.sin(60.0 * x)), (0.96, 0.97, 0.99))
    canvas.band(0.6, 1.0, (0.68, 0.74, 0.56), 0.3)


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
        paint: its backdrop.
        surfaces: where things may be.
        prior: relative frequency of what is expected there, by name of the thing.
    """

    group: str
    paint: Callable[[Canvas], None]
    surfaces: tuple[Surface, ...]
    prior: Mapping[str, float]

    @property
    def indoors(self) -> bool:
        """Has a roof."""
        return self.group in ("home", "public")


def _place(name: str, entry: Settings) -> ScenePlace:
    """A place of the table."""
    if "paint" in entry:
        paint = partial(Canvas.paint, calls=entry["paint"])
    else:
        paint = globals()[name.replace(" ", "_")]
    return ScenePlace(
        entry["group"],
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
