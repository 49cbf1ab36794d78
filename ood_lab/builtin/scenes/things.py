"""Everything that can stand in a scene: its name, kind, colours, states and drawer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ood_lab.builtin.scenes.painted_parts import (
    OWN_DARK,
    Part,
    PartsDrawer,
    described,
    on_plate,
    two_tone,
)
from ood_lab.builtin.vessels.drawings.signed_distances import (
    Array,
    Proportions,
    both,
    box,
    capsule,
    ellipse,
    minus,
    polygon,
    profile,
    ring,
    turned,
    union,
)
from ood_lab.builtin.vessels.nouns import NOUNS
from ood_lab.common.arguments import Settings
from ood_lab.common.files import packaged_table

_SKINS = ("light skin", "brown skin", "dark skin")


def clock(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A round clock with two hands."""
    case = ellipse(u, v, (0.0, 0.0), (0.8, 0.8))
    face = ellipse(u, v, (0.0, 0.0), (0.62, 0.62))
    angle = np.pi * p[0]
    long = (0.5 * float(np.sin(angle)), 0.5 * float(np.cos(angle)))
    short = (0.34 * float(np.sin(angle + 2.0)), 0.34 * float(np.cos(angle + 2.0)))
    hands = union(capsule(u, v, (0.0, 0.0), long, 0.06), capsule(u, v, (0.0, 0.0), short, 0.075))
    return [Part(case), Part(face, "white"), Part(hands, "dark")]


def book(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A book: ``open``, with two white pages, or ``closed``, standing."""
    if state == "open":
        side = np.abs(u)
        cover = polygon(side, v, (-0.02, -0.52), (0.84, -0.32), (0.84, 0.4), (-0.02, 0.2))
        page = polygon(side, v, (0.03, -0.4), (0.76, -0.22), (0.76, 0.44), (0.03, 0.26))
        lines = both(np.abs(np.mod(v - 0.24 * side, 0.2) - 0.1) - 0.028, page + 0.1)
        return [Part(cover), Part(page, "white"), Part(lines, "grey")]
    wide = 0.5 + 0.04 * p[0]
    block = box(u, v, (0.04, 0.0), (wide, 0.68))
    pages = both(box(u, v, (wide - 0.02, 0.0), (0.09, 0.6)), block - 0.02)
    spine = box(u, v, (0.08 - wide, 0.0), (0.07, 0.68))
    title = box(u, v, (0.08, 0.3), (0.26, 0.1))
    return [Part(block), Part(pages, "white"), Part(spine, OWN_DARK), Part(title, "cream")]


def umbrella(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """An umbrella with a crook: ``open``, or ``closed`` and upright."""
    crook = both(ring(u, v, (0.12, -0.72), (0.12, 0.12), 0.045), v + 0.7)
    pole = capsule(u, v, (0.0, 0.8), (0.0, -0.7), 0.045)
    handle = Part(union(crook, pole), "dark")
    if state == "closed":
        cloth = profile(u, v, [-0.34, -0.26, 0.3, 0.74], [0.07, 0.2, 0.15, 0.03])
        fold = capsule(u, v, (0.06, -0.28), (0.0, 0.6), 0.03, 0.01)
        return [handle, Part(cloth), Part(fold, OWN_DARK)]
    dome = both(ellipse(u, v, (0.0, 0.02), (0.9, 0.68 + 0.04 * p[0])), 0.02 - v)
    scallops = [ellipse(np.abs(u), v, (x, 0.0), (0.2, 0.12)) for x in (0.0, 0.38, 0.74)]
    ribs = both(dome, np.abs(np.abs(u) - 0.34 * (1.05 - v)) - 0.03)
    return [handle, Part(minus(dome, *scallops)), Part(minus(ribs, *scallops), OWN_DARK)]


def suitcase(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A suitcase: ``closed``, with two straps, or ``open``, its lid up."""
    if state == "open":
        base = box(u, v, (0.0, -0.4), (0.84, 0.22))
        lid = polygon(u, v, (-0.84, -0.14), (0.84, -0.14), (0.72, 0.66), (-0.72, 0.66))
        lining = polygon(u, v, (-0.68, -0.12), (0.68, -0.12), (0.58, 0.54), (-0.58, 0.54))
        clothes = both(ellipse(u, v, (-0.1, -0.18), (0.6, 0.16)), -0.18 - v)
        return [Part(lid), Part(lining, "cream"), Part(clothes, "window"), Part(base, OWN_DARK)]
    case = box(u, v, (0.0, -0.14), (0.82, 0.52 + 0.03 * p[0]))
    handle = both(ring(u, v, (0.0, 0.38), (0.24, 0.22), 0.06), 0.34 - v)
    straps = both(np.abs(np.abs(u) - 0.44) - 0.07, case)
    corners = both(case, 1.12 - np.abs(u) - np.abs(v + 0.14))
    return [Part(handle, "dark"), Part(case), Part(union(straps, corners), OWN_DARK)]


def person(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A person in a coloured shirt: ``wave`` with one arm up, or ``stand``."""
    skin = _SKINS[int(1.5 * (p[1] + 1.0)) % len(_SKINS)]
    head = ellipse(u, v, (0.0, 0.66), (0.18, 0.2))
    hair = both(ellipse(u, v, (0.0, 0.7), (0.2, 0.2)), 0.68 - v)
    wide = 0.26 + 0.02 * p[0]
    torso = polygon(u, v, (-0.2, -0.14), (0.2, -0.14), (wide, 0.46), (-wide, 0.46))
    legs = union(*[capsule(u, v, (x, -0.12), (1.2 * x, -0.82), 0.1, 0.08) for x in (-0.11, 0.11)])
    hanging = capsule(u, v, (-0.27, 0.36), (-0.38, -0.12), 0.075)
    raised = capsule(u, v, (0.27, 0.36), (0.5, 0.84), 0.075)
    lowered = capsule(u, v, (0.27, 0.36), (0.38, -0.12), 0.075)
    arms = union(hanging, raised if state == "wave" else lowered)
    hand = (0.5, 0.84) if state == "wave" else (0.38, -0.14)
    hands = union(ellipse(u, v, (-0.38, -0.14), (0.08, 0.08)), ellipse(u, v, hand, (0.085, 0.085)))
    return [
        Part(legs, "dark"),
        Part(union(torso, arms)),
        Part(hands, skin),
        Part(head, skin),
        Part(hair, "dark"),
    ]


def ball(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A beach ball with white stripes."""
    disc = ellipse(u, v, (0.0, 0.0), (0.76, 0.76))
    along, across = turned(u, v, 0.8 * p[0])
    # Meridians: ellipses through the poles.
    outer = ellipse(along, across, (0.0, 0.0), (0.54, 0.76))
    inner = ellipse(along, across, (0.0, 0.0), (0.2, 0.76))
    return [Part(disc), Part(outer, "white"), Part(inner)]


#: What a thing rests on or hangs in, see :class:`ood_lab.builtin.scenes.places.Surface`.
Spot = Literal["floor", "top", "wall", "sky", "water"]


@dataclass(frozen=True)
class States:
    """Two states of a thing, of which every object shows one; or none.

    Attributes:
        words: the two, adjectives (``open``) or, for an action, bare verbs (``wave``).
        kind: name of the attribute, ``state`` or ``action``.
        by_colour: the states differ only in colour, so that no drawing shows them.
        spots: where a thing in one of them belongs, if not where the thing does.
        colourless: the one in which a thing shows nothing of its colour.
    """

    words: Sequence[str] = ()
    kind: Literal["state", "action"] = "state"
    by_colour: bool = False
    spots: Mapping[str, Sequence[Spot]] = field(default_factory=dict)
    colourless: str | None = None

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
        states: two states, or none.
        bulk: size relative to other things at the same distance.
        group: chance that there are several of it together.
        upright: it never leans.
    """

    kind: str
    draw: PartsDrawer
    spots: Sequence[Spot]
    colours: Sequence[str] = ()
    states: States = States()
    bulk: float = 1.0
    group: float = 0.15
    upright: bool = False

    def belongs(self, state: str) -> Sequence[Spot]:
        """Where it belongs in a state, best first."""
        return self.states.spots.get(state, self.spots)


_TABLE = packaged_table(__package__, "things.yaml")
_DRAWINGS = packaged_table(__package__, "drawings.yaml")
_PALETTES = _TABLE["palettes"]


def _thing(name: str, entry: Settings) -> Thing:
    """A thing of the table; its drawing has its name."""
    draw = described(_DRAWINGS[name]) if name in _DRAWINGS else globals()[name.replace(" ", "_")]
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
