"""What the drawers of scenes return: parts painted one over the other, each with its tone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ood_lab.builtin.vessels.drawings.shape_descriptions import Description, shape_of
from ood_lab.builtin.vessels.drawings.signed_distances import Array, Drawer, Proportions, both
from ood_lab.builtin.vessels.nouns import NOUNS
from ood_lab.common.arguments import Settings
from ood_lab.common.files import packaged_table

#: Red, green and blue in [0, 1].
Tone = Sequence[float]

_TABLE: dict[str, dict[str, Tone]] = packaged_table(__package__, "colours.yaml")
#: Colour words, far enough apart that everybody names them alike.
COLOURS = _TABLE["colours"]
#: Tones of parts that keep their colour whatever the colour of the object.
MATERIALS = _TABLE["materials"]
#: A part in the object's own colour, or a darker or lighter shade of it.
OWN, OWN_DARK, OWN_LIGHT = "own", "darker", "lighter"


def tones(colour: str, tint: tuple[float, float, float]) -> Mapping[str, Tone]:
    """RGB of every tone that a part of an object may have.

    Args:
        colour: key of ``COLOURS``, that of the object; empty: it has none of its own.
        tint: small difference of this object's own colour from the word's, RGB.

    Returns:
        ``MATERIALS``, and ``OWN``, ``OWN_DARK``, ``OWN_LIGHT`` of an object with a colour.
    """
    if not colour:
        return MATERIALS
    plain = [min(max(c + d, 0.0), 1.0) for c, d in zip(COLOURS[colour], tint, strict=True)]
    dark, light = [0.6 * c for c in plain], [c + 0.45 * (1.0 - c) for c in plain]
    return {**MATERIALS, OWN: plain, OWN_DARK: dark, OWN_LIGHT: light}


class Part(NamedTuple):
    """One part of an object.

    Attributes:
        distance: signed distance, negative inside, in local units, ``[H, W]``.
        tone: its colour, see :func:`~ood_lab.builtin.scenes.painted_parts.tones`.
    """

    distance: Array
    tone: str = OWN


#: Local coordinates (right, up), proportions in [-1, 1] and the state in words → parts, back to
#: front.
PartsDrawer = Callable[[Array, Array, Proportions, str], list[Part]]


def described(entry: Settings) -> PartsDrawer:
    """The drawer of an entry of drawings.yaml."""
    description = Description(entry)
    parts = [
        (tone, node if isinstance(node, Mapping) else None, shape_of(node))
        for part in entry["parts"]
        for tone, node in part.items()
    ]

    def draw(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
        known = {}
        if noun := entry.get("noun"):
            figure = NOUNS[noun].draw(u, v, p)
            known = {"solid": figure.solid, "belt": figure.belt_area}
        frame = description.frame(u, v, p, state, known)
        return [
            Part(shape(frame), tone)
            for tone, states, shape in parts
            if states is None or state in states
        ]

    return draw


def two_tone(draw: Drawer) -> PartsDrawer:
    """A drawer of the vessels: what carries no ornament is darker."""

    def parts(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
        figure = draw(u, v, p)
        return [Part(figure.solid, OWN_DARK), Part(figure.belt_area)]

    return parts


def on_plate(draw: Drawer) -> PartsDrawer:
    """A pattern of the vessels on a square white plate."""

    def parts(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
        plate = np.maximum(np.abs(u), np.abs(v)) - 0.72
        # The pattern is drawn coarser than on a whole image: it has to be seen on few pixels.
        figure = draw(u * 0.7, v * 0.7, p)
        return [Part(plate, "white"), Part(both(figure.solid, plate + 0.06))]

    return parts
