"""Everything that can stand in a scene: its name, kind, colours, states and drawer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ood_lab.builtin.scenes.drawings import computed_things
from ood_lab.builtin.scenes.drawings.painted_parts import (
    PartsDrawer,
    described,
    on_plate,
    two_tone,
)
from ood_lab.builtin.vessels.nouns import NOUNS
from ood_lab.common.files import packaged_table

#: What a thing rests on or hangs in, see :class:`ood_lab.builtin.scenes.places.Surface`.
Spot = Literal["floor", "top", "wall", "sky", "water"]


@dataclass(frozen=True)
class States:
    """Two states of a thing, of which every object shows one.

    Attributes:
        words: the two, adjectives (``open``) or, for an action, bare verbs (``wave``).
        kind: name of the attribute, ``state`` or ``action``.
        by_colour: the states differ only in colour, so that no drawing shows them.
        spots: where a thing in one of them belongs, if not where the thing does.
        colourless: the one in which a thing shows nothing of its colour.
    """

    words: Sequence[str]
    kind: Literal["state", "action"] = "state"
    by_colour: bool = False
    spots: Mapping[str, Sequence[Spot]] = field(default_factory=dict)
    colourless: str = ""

    def other(self, word: str) -> str:
        """The state that it is not in."""
        return self.words[1 - self.words.index(word)]


@dataclass(frozen=True)
class Thing:
    """A class of objects.

    Attributes:
        kind: broader word, the ``supercategory`` of COCO's format.
        draw: its drawer.
        spots: where it belongs, best first; a place without any of these puts it on the floor.
        colours: words for what it may be painted in; the attribute ``colour``. Empty: a thing
            of fixed colours, without that attribute.
        states: two states, or None.
        bulk: size relative to other things at the same distance.
        group: chance that there are several of it together.
        upright: it never leans.
    """

    kind: str
    draw: PartsDrawer
    spots: Sequence[Spot]
    colours: Sequence[str] = ()
    states: States | None = None
    bulk: float = 1.0
    group: float = 0.15
    upright: bool = False

    def belongs(self, state: str) -> Sequence[Spot]:
        """Where it belongs in a state, best first."""
        return self.states.spots.get(state, self.spots) if self.states else self.spots


_TABLE = packaged_table(__package__, "things.yaml")
_DRAWINGS = packaged_table(__package__, "drawings.yaml")
_PALETTES = _TABLE["palettes"]


def _thing(name: str, entry: Mapping[str, Any]) -> Thing:
    """A thing of the table; its drawing has its name."""
    if name in _DRAWINGS:
        draw = described(_DRAWINGS[name])
    else:
        draw = vars(computed_things)[name.replace(" ", "_")]
    fields = dict(entry)
    if "states" in fields:
        fields["states"] = States(**fields["states"])
    if isinstance(palette := fields.get("colours"), str):
        fields["colours"] = _PALETTES[palette]
    return Thing(draw=draw, **fields)


#: Things that have a home in some place. Their order numbers the categories.
FAMILIAR = {name: _thing(name, entry) for name, entry in _TABLE["things"].items()}
#: Archaic vessels: things without a home anywhere (semantic level 4).
UNFAMILIAR = {
    name: Thing(
        "archaic vessel", two_tone(NOUNS[name].draw), ("top", "floor"), _PALETTES["pottery"]
    )
    for name in ("hu", "zun", "jue", "dou")
}
#: Patterns on a plate: not even things (semantic level 5).
ABSTRACT = {
    name: Thing(
        "abstract pattern",
        on_plate(NOUNS[name].draw),
        ("wall", "sky", "top", "floor"),
        _PALETTES["vivid"],
    )
    for name in ("spiral", "checkerboard", "ring pattern", "glyph grid")
}
THINGS: dict[str, Thing] = {**FAMILIAR, **UNFAMILIAR, **ABSTRACT}
