"""Colours that an object can be said to have, and those of materials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
