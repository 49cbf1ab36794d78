"""Draws scenes: what is in them, and room for every object on the right surface."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from ood_lab.builtin.scenes.covariate_styles import SIZES
from ood_lab.builtin.scenes.places import PLACES, Surface, things_at
from ood_lab.builtin.scenes.scene import Scene, SceneObject, Setting
from ood_lab.builtin.scenes.sprite import Look, draw, extent
from ood_lab.builtin.scenes.things import THINGS
from ood_lab.builtin.vessels.scene import pick
from ood_lab.common.errors import UserError
from ood_lab.common.random_streams import RandomStream
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


@dataclass
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

    rng: RandomStream
    place: str
    setting: Setting
    size: int
    _placed: list[_Placed] = field(default_factory=list)

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
        rng, size = self.rng, self.size
        surfaces = _surfaces(self.place, look.thing, look.state)
        near = min(1.0, 2.0 * look.size / size)
        choice, across, depth = rng.random(3).tolist()
        surface = surfaces[int(choice * len(surfaces))]
        depth = 0.55 * near + 0.45 * depth
        foot = surface.top + depth * (surface.bottom - surface.top) + self.setting.lift
        across = surface.left + across * (surface.right - surface.left)
        if self.setting.mirrored:
            across = 1.0 - across
        return self._within(look, across * size, foot * size, surface.spot in ("floor", "top"))

    def _within(self, look: Look, centre: float, foot: float, stands: bool) -> _Placed:
        """The object with its foot at a point, moved as little as keeps it in the image."""
        sprite = draw(look)
        height, width = sprite.mask.shape
        left = min(max(round(centre - width / 2), 0), self.size - width)
        top = min(max(round(foot) - height, 0), self.size - height)
        mask = np.zeros((self.size, self.size), bool)
        mask[top : top + height, left : left + width] = sprite.mask
        item = SceneObject(look, left - sprite.left, top - sprite.top, stands)
        return _Placed(item, top + height, mask, mask)

    def _anywhere(self, look: Look) -> bool:
        """The first free position of a grid, for crowded scenes."""
        step = max(2, look.size // 2)
        for foot in range(self.size, 0, -step):
            for centre in range(0, self.size, step):
                if self._try(self._within(look, centre, foot, stands=True)):
                    return True
        raise UserError(
            f"scenes: no room for one more {look.thing} in an image of {self.size} pixels; "
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


#: Fewest and most objects of a scene.
OBJECTS = (2, 8)
#: Share of the objects of a scene above semantic level 0 that are of that level, beyond the first.
_STRANGERS = 0.35
_GROUP = (2, 4)


@dataclass(frozen=True)
class ObjectRequest:
    """An object that a scene must have; what is None is drawn.

    Attributes:
        thing: key of ``THINGS``.
        colour: key of ``COLOURS``; any, also one that the thing never has by itself.
        state: one of the thing's states.
        length: longer side of its box, pixels.
    """

    thing: str
    colour: str | None = None
    state: str | None = None
    length: float | None = None


def check_size(size: int) -> None:
    """Rejects sizes that no style can paint.

    Raises:
        UserError: not a multiple of 4 from 64 to 256.
    """
    if size not in SIZES:
        raise UserError(
            f"scenes: size={size}; give a multiple of {SIZES.step} from {SIZES[0]} to {SIZES[-1]}"
        )


def sample_scene(
    rng: RandomStream,
    *,
    size: int = 96,
    place: str | None = None,
    style: str = "photo",
    semantic_level: int = 0,
    wanted: Sequence[ObjectRequest] = (),
    objects: tuple[int, int] = OBJECTS,
) -> Scene:
    """Draws a scene: its content, and where everything stands.

    The objects are the wanted ones, then one or more of the semantic level, then some that the
    place's prior expects. Sizes are log-uniform from 5 pixels to half the image. No object is
    hidden by more than 35% (see :class:`Layout`); of those that
    were not asked for, the ones that find no room are skipped, down to two.

    A wanted object stands in the scene whatever its own level, so that ``semantic_level`` of the
    scene may come out higher; where the wanted ones are all, it is theirs. One that finds no room
    at its length is made smaller.

    Args:
        rng: of everything that is drawn.
        size: height and width of the image, pixels, see :func:`check_size`.
        place: key of ``PLACES``; None = any, all equally likely.
        style: key of ``STYLES``.
        semantic_level: 0 to 5, see :func:`~ood_lab.builtin.scenes.places.level_of`.
        wanted: objects that must be there.
        objects: fewest and most objects in all; as many as are wanted at least.

    Raises:
        UserError: objects that find no room.
    """
    place = place or pick(rng, tuple(PLACES))
    setting = _setting(rng)
    count = max(int(rng.integers(objects[0], objects[1] + 1)), len(wanted))
    strangers = _strangers(rng, place, semantic_level, count - len(wanted))
    musts = [*wanted, *strangers]
    usual = _expected(rng, place, count - len(musts))
    # A scene of one object by chance would be none: two are always found room for.
    certain = min(max(len(musts), objects[0]), len(musts) + len(usual))
    layout = Layout(rng, place, setting, size)
    for number, wish in enumerate([*musts, *usual]):
        layout.put(_look(rng, wish, size, setting.lamp), must=number < certain)
    return Scene(place, style, size, setting, layout.items())


def _setting(rng: RandomStream) -> Setting:
    mirrored, lift, lamp, bright, *tint = rng.uniform(-1.0, 1.0, 7).tolist()
    red, green, blue = (1.0 + 0.07 * bright + 0.03 * shift for shift in tint)
    return Setting(mirrored > 0, 0.03 * lift, (red, green, blue), lamp)


def _strangers(rng: RandomStream, place: str, level: int, room: int) -> list[ObjectRequest]:
    if not level or room < 1:
        return []
    count = 1 + int(rng.binomial(room - 1, _STRANGERS))
    return [ObjectRequest(pick(rng, things_at(place, level))) for _ in range(count)]


def _expected(rng: RandomStream, place: str, room: int) -> list[ObjectRequest]:
    """Things from the prior of a place, some of them in groups."""
    names, cumulative = _chances(place)
    requests: list[ObjectRequest] = []
    while len(requests) < room:
        name = names[bisect_right(cumulative, rng.random())]
        together = 1
        if rng.random() < THINGS[name].group:
            together = int(rng.integers(_GROUP[0], _GROUP[1] + 1))
        requests += [ObjectRequest(name)] * min(together, room - len(requests))
    return requests


@cache
def _chances(place: str) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """What a place's prior has, and the cumulative chances of all but the last."""
    prior = PLACES[place].prior
    weights = list(prior.values())
    cumulative = np.cumsum(weights) / np.sum(weights)
    return tuple(prior), tuple(cumulative[:-1].tolist())


def _look(rng: RandomStream, wish: ObjectRequest, size: int, lamp: float) -> Look:
    thing = THINGS[wish.thing]
    # One draw a property, whatever was asked for: nothing else moves when a wish changes.
    draws = rng.random(11).tolist()
    wide, high, deep = (2.0 * draw - 1.0 for draw in draws[4:7])
    red, green, blue = (0.1 * draw - 0.05 for draw in draws[7:10])
    near = SMALLEST * (size / 2 / SMALLEST) ** draws[0]
    length = wish.length or min(max(near * thing.bulk, SMALLEST), size / 2)
    state = wish.state or _one_of(thing.states.words, draws[1])
    colour = wish.colour or _one_of(thing.colours, draws[2])
    if state == thing.states.colourless:
        colour = ""
    return Look(
        thing=wish.thing,
        colour=colour,
        state=state,
        size=math.ceil(length / extent(wish.thing, state)),
        angle=0.0 if thing.upright else 0.16 * (draws[3] - 0.5),
        mirrored=draws[10] < 0.5,
        proportions=(wide, high, deep),
        tint=(red, green, blue),
        lamp=lamp,
    )


def _one_of(words: Sequence[str], draw: float) -> str:
    return words[int(draw * len(words))] if words else ""
