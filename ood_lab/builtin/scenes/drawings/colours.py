"""Colours that an object can be said to have, and those of materials."""

from __future__ import annotations

from collections.abc import Mapping

#: Red, green and blue in [0, 1].
Tone = tuple[float, float, float]

#: Colour words, far enough apart that everybody names them alike.
COLOURS: dict[str, Tone] = {
    "red": (0.86, 0.10, 0.10),
    "orange": (0.98, 0.52, 0.06),
    "yellow": (0.98, 0.86, 0.12),
    "green": (0.14, 0.62, 0.20),
    "blue": (0.12, 0.32, 0.90),
    "purple": (0.56, 0.18, 0.76),
    "pink": (1.00, 0.52, 0.74),
    "brown": (0.46, 0.26, 0.10),
    "white": (0.97, 0.97, 0.95),
    "black": (0.12, 0.12, 0.13),
}
#: Tones of parts that keep their colour whatever the colour of the object.
MATERIALS: dict[str, Tone] = {
    "wood": (0.60, 0.40, 0.20),
    "steel": (0.66, 0.70, 0.74),
    "brass": (0.85, 0.68, 0.22),
    "dark": (0.16, 0.16, 0.18),
    "grey": (0.40, 0.41, 0.43),
    "white": (0.96, 0.96, 0.94),
    "cream": (0.97, 0.91, 0.74),
    "light skin": (0.95, 0.77, 0.62),
    "brown skin": (0.72, 0.50, 0.34),
    "dark skin": (0.42, 0.27, 0.18),
    "leaf": (0.16, 0.50, 0.16),
    "glass": (0.80, 0.93, 0.97),
    "window": (0.62, 0.84, 0.96),
    "wine": (0.55, 0.05, 0.18),
    "glow": (1.00, 0.92, 0.38),
    "flame": (1.00, 0.55, 0.08),
    "brick": (0.62, 0.22, 0.14),
    "red light": (1.00, 0.12, 0.08),
    "green light": (0.10, 0.95, 0.35),
    "nose": (0.98, 0.60, 0.10),
}
#: A part in the object's own colour, or a darker or lighter shade of it.
OWN, OWN_DARK, OWN_LIGHT = "own", "own, dark", "own, light"


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
    own = [min(max(c + d, 0.0), 1.0) for c, d in zip(COLOURS[colour], tint, strict=True)]
    dark, light = [0.6 * c for c in own], [c + 0.45 * (1.0 - c) for c in own]
    return {**MATERIALS, OWN: _tone(own), OWN_DARK: _tone(dark), OWN_LIGHT: _tone(light)}


def _tone(values: list[float]) -> Tone:
    red, green, blue = values
    return red, green, blue
