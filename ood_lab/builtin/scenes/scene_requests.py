"""What a scene may be asked to show, and which wishes make no sense."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ood_lab.builtin.scenes.covariate_styles import SIZES, STYLES
from ood_lab.builtin.scenes.drawings.colours import COLOURS
from ood_lab.builtin.scenes.layout import SMALLEST
from ood_lab.builtin.scenes.places import PLACES
from ood_lab.builtin.scenes.things import THINGS
from ood_lab.common.errors import UserError
from ood_lab.common.hints import check_known

#: Fewest and most objects of a scene.
OBJECTS = (2, 8)


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


def check_scene(
    place: str | None, style: str, semantic_level: int, objects: tuple[int, int]
) -> None:
    """Rejects names and numbers that no scene can have.

    Raises:
        UserError: an unknown place or style, a level or number of objects out of range.
    """
    check_known([place], PLACES, "scenes: no place is called '{name}'")
    check_known([style], STYLES, "scenes: no style is called '{name}'")
    if not 0 <= semantic_level <= 5:
        raise UserError(f"scenes: semantic_level={semantic_level}; give a level from 0 to 5")
    if not 0 <= objects[0] <= objects[1] <= OBJECTS[1]:
        raise UserError(
            f"scenes: objects={list(objects)}; give the fewest and the most, up to {OBJECTS[1]}"
        )


def check_wishes(wanted: Sequence[ObjectRequest], size: int) -> None:
    """Rejects wishes that cannot be drawn in an image of ``size`` pixels.

    Raises:
        UserError: more than a scene holds; an unknown thing, colour or state, or a length out of
            range.
    """
    if len(wanted) > OBJECTS[1]:
        raise UserError(f"scenes: {len(wanted)} objects are wanted; a scene has up to {OBJECTS[1]}")
    for wish in wanted:
        _check_wish(wish, size)


def _check_wish(wish: ObjectRequest, size: int) -> None:
    check_known([wish.thing], THINGS, "scenes: nothing is called '{name}'")
    thing = THINGS[wish.thing]
    if wish.colour is not None and not thing.colours:
        raise UserError(f"scenes: a {wish.thing} has fixed colours; give it none")
    check_known([wish.colour], COLOURS, "scenes: no colour is called '{name}'")
    states = thing.states.words if thing.states else ()
    if wish.state is not None and wish.state not in states:
        known = f"it is {' or '.join(states)}" if states else "it has no states"
        raise UserError(f"scenes: a {wish.thing} is never '{wish.state}': {known}")
    if wish.colour and thing.states and wish.state == thing.states.colourless:
        raise UserError(f"scenes: a {wish.state} {wish.thing} shows no colour; give it none")
    if wish.length is not None and not SMALLEST <= wish.length <= size / 2:
        raise UserError(
            f"scenes: a {wish.thing} of {wish.length} pixels; give {SMALLEST} to {size / 2:g}"
        )
