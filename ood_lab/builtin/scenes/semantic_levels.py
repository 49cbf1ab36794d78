"""Semantic levels: the distance of an object from those that are expected in a place."""

from __future__ import annotations

from functools import cache

from ood_lab.builtin.scenes.places import PLACES
from ood_lab.builtin.scenes.things import ABSTRACT, THINGS, UNFAMILIAR


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
