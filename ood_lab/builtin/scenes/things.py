"""Everything that can stand in a scene: its name, kind, colours, states and drawer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ood_lab.builtin.scenes.drawings import household_objects, living_things, outdoor_objects
from ood_lab.builtin.scenes.drawings.painted_parts import PartsDrawer, on_plate, two_tone
from ood_lab.builtin.vessels.drawings import archaic_vessels, nature

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

    words: tuple[str, str]
    kind: Literal["state", "action"] = "state"
    by_colour: bool = False
    spots: Mapping[str, tuple[Spot, ...]] = field(default_factory=dict)
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
    spots: tuple[Spot, ...]
    colours: tuple[str, ...] = ()
    states: States | None = None
    bulk: float = 1.0
    group: float = 0.15
    upright: bool = False

    def belongs(self, state: str) -> tuple[Spot, ...]:
        """Where it belongs in a state, best first."""
        return self.states.spots.get(state, self.spots) if self.states else self.spots


_VIVID = ("red", "orange", "yellow", "green", "blue", "purple", "pink")
_ANY = (*_VIVID, "white", "black", "brown")
_POTTERY = ("red", "yellow", "green", "blue", "purple", "white", "brown")
_FUR = ("orange", "brown", "black", "white")
_OPEN = States(("open", "closed"))
_FULL = States(("full", "empty"))
_LIT = States(("lit", "unlit"))

#: Things that have a home in some place. Their order numbers the categories.
FAMILIAR: dict[str, Thing] = {
    "mug": Thing("tableware", household_objects.mug, ("top",), _ANY, bulk=0.8, group=0.35),
    "bowl": Thing("tableware", household_objects.bowl, ("top",), _POTTERY, _FULL, 0.9),
    "teapot": Thing("tableware", household_objects.teapot, ("top",), _POTTERY),
    "bottle": Thing(
        "tableware",
        household_objects.bottle,
        ("top",),
        ("green", "brown", "blue", "red"),
        group=0.35,
    ),
    "wine glass": Thing("tableware", household_objects.wine_glass, ("top",), (), _FULL, 0.9, 0.4),
    "apple": Thing(
        "food",
        household_objects.apple,
        ("top", "floor"),
        ("red", "green", "yellow"),
        States(("bitten", "whole")),
        0.7,
        0.45,
    ),
    "lamp": Thing("furniture", household_objects.lamp, ("top",), (), _LIT),
    "chair": Thing("furniture", household_objects.chair, ("floor",), _ANY, bulk=1.3, group=0.35),
    "stool": Thing("furniture", household_objects.stool, ("floor",), _ANY),
    "clock": Thing("furniture", household_objects.clock, ("wall", "top"), _ANY),
    "book": Thing("belongings", household_objects.book, ("top",), _VIVID, _OPEN, 0.9, 0.35),
    "candle": Thing(
        "furniture",
        household_objects.candle,
        ("top",),
        ("white", "red", "blue", "green"),
        _LIT,
        0.9,
        0.35,
    ),
    "television": Thing(
        "furniture", household_objects.television, ("top",), (), States(("on", "off"))
    ),
    "guitar": Thing(
        "belongings",
        household_objects.guitar,
        ("floor",),
        ("orange", "red", "blue", "white"),
        bulk=1.2,
    ),
    "bucket": Thing("tool", household_objects.bucket, ("floor",), _VIVID),
    "axe": Thing("tool", household_objects.axe, ("floor", "top")),
    "ladder": Thing(
        "tool", household_objects.ladder, ("floor",), ("brown", "yellow", "white"), bulk=1.5
    ),
    "bell": Thing(
        "tool", household_objects.bell, ("top",), ("yellow", "orange", "white"), bulk=0.8
    ),
    "umbrella": Thing(
        "belongings", household_objects.umbrella, ("floor",), (*_VIVID, "black"), _OPEN, 1.2, 0.25
    ),
    "suitcase": Thing("belongings", household_objects.suitcase, ("floor",), _ANY, _OPEN, 1.0, 0.3),
    "person": Thing(
        "person",
        living_things.person,
        ("floor",),
        (*_VIVID, "white"),
        States(("wave", "stand"), "action"),
        1.4,
        0.4,
        True,
    ),
    "cat": Thing(
        "animal",
        living_things.cat,
        ("floor", "top"),
        _FUR,
        States(("sit", "lie"), "action"),
        upright=True,
    ),
    "dog": Thing(
        "animal",
        living_things.dog,
        ("floor",),
        _FUR,
        States(("stand", "sit"), "action"),
        1.1,
        0.2,
        True,
    ),
    "bird": Thing(
        "animal",
        living_things.bird,
        ("sky", "floor"),
        ("red", "yellow", "green", "blue", "white", "black", "brown"),
        States(("fly", "stand"), "action", spots={"stand": ("floor",)}),
        0.8,
        0.4,
    ),
    "butterfly": Thing(
        "animal", living_things.butterfly, ("sky", "wall"), _VIVID, bulk=0.6, group=0.35
    ),
    "fish": Thing("animal", living_things.fish, ("water", "top"), _VIVID, bulk=0.8, group=0.4),
    "tree": Thing(
        "plant",
        living_things.tree,
        ("floor",),
        ("green", "orange", "pink"),
        States(("leafy", "bare"), colourless="bare"),
        1.8,
        0.45,
        True,
    ),
    "flower": Thing(
        "plant",
        living_things.flower,
        ("floor", "top"),
        ("red", "orange", "blue", "purple", "pink", "white"),
        group=0.45,
        bulk=0.8,
    ),
    "mushroom": Thing(
        "plant",
        living_things.mushroom,
        ("floor",),
        ("red", "orange", "brown"),
        bulk=0.7,
        group=0.45,
    ),
    "car": Thing(
        "vehicle", outdoor_objects.car, ("floor",), _ANY, bulk=1.5, group=0.35, upright=True
    ),
    "bicycle": Thing(
        "vehicle", outdoor_objects.bicycle, ("floor",), _VIVID, bulk=1.2, upright=True
    ),
    "boat": Thing("vehicle", outdoor_objects.boat, ("water", "floor"), _ANY, bulk=1.3, group=0.35),
    "traffic light": Thing(
        "street furniture",
        outdoor_objects.traffic_light,
        ("floor",),
        (),
        States(("red", "green"), by_colour=True),
        1.3,
        upright=True,
    ),
    "house": Thing(
        "building",
        outdoor_objects.house,
        ("floor",),
        ("yellow", "blue", "white", "pink", "green"),
        bulk=1.8,
        group=0.3,
        upright=True,
    ),
    "tent": Thing("building", outdoor_objects.tent, ("floor",), _VIVID, _OPEN, 1.4, upright=True),
    "ball": Thing("toy", outdoor_objects.ball, ("floor",), _VIVID, bulk=0.7, group=0.2),
    "kite": Thing("toy", outdoor_objects.kite, ("sky", "wall"), _VIVID, group=0.25),
}
#: Archaic vessels: things without a home anywhere (semantic level 4).
UNFAMILIAR: dict[str, Thing] = {
    name: Thing("archaic vessel", two_tone(draw), ("top", "floor"), _POTTERY)
    for name, draw in (
        ("hu", archaic_vessels.hu),
        ("zun", archaic_vessels.zun),
        ("jue", archaic_vessels.jue),
        ("dou", archaic_vessels.dou),
    )
}
#: Patterns on a plate: not even things (semantic level 5).
ABSTRACT: dict[str, Thing] = {
    name: Thing("abstract pattern", on_plate(draw), ("wall", "sky", "top", "floor"), _ANY[:-3])
    for name, draw in (
        ("spiral", nature.spiral),
        ("checkerboard", nature.checkerboard),
        ("ring pattern", nature.rings),
        ("glyph grid", nature.glyphs),
    )
}
THINGS: dict[str, Thing] = {**FAMILIAR, **UNFAMILIAR, **ABSTRACT}
