"""Ornament motifs: dark marks on the belt of a vessel.

A motif maps ``a`` (position around the belt, one unit a repeat) and ``b`` (height in the belt,
0 = lower edge, 1 = upper edge) to a boolean mark map.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ood_lab.builtin.vessels.drawings.signed_distances import Array
from ood_lab.schema.arrays import Bools


def _fraction(a: Array) -> Array:
    return a - np.floor(a)


def _centred(a: Array) -> Array:
    """From -1 to 1 over every unit."""
    return 2.0 * _fraction(a) - 1.0


def _bead(a: Array, b: Array) -> Bools:
    across, height = _centred(a), 2.0 * b - 1.0
    radius = across * across + height * height
    return (radius < 0.12) | ((radius > 0.45) & (radius < 1.0))


def _thunder(a: Array, b: Array) -> Bools:
    square = np.maximum(np.abs(_centred(a)), np.abs(2.0 * b - 1.0))
    return _fraction(square * 2.2) < 0.5


def _lattice(a: Array, b: Array) -> Bools:
    across = _fraction(a)
    return (np.abs(across - b) < 0.18) | (np.abs(across + b - 1.0) < 0.18)


def _double_dash(a: Array, b: Array) -> Bools:
    upper = b > 0.5
    return (_fraction(a + 0.5 * upper) < 0.55) & (np.abs(np.abs(b - 0.5) - 0.3) < 0.18)


#: Motif name -> marks, in the order of the periods whose main motif it is.
MOTIFS: dict[str, Callable[[Array, Array], Bools]] = {
    "string": lambda a, b: np.abs(np.abs(b - 0.5) - 0.32) < 0.15,
    "bead": _bead,
    "thunder": _thunder,
    "slant": lambda a, b: _fraction(a + 0.8 * b) < 0.45,
    "zigzag": lambda a, b: np.abs(b - 0.2 - 0.6 * np.abs(_centred(a))) < 0.22,
    "wave": lambda a, b: np.abs(b - 0.5 - 0.34 * np.sin(np.float32(2 * np.pi) * a)) < 0.2,
    "checker": lambda a, b: (_fraction(a) < 0.5) ^ (_fraction(1.5 * b) < 0.5),
    "lattice": _lattice,
    "teeth": lambda a, b: b > np.abs(_centred(a)),
    "double_dash": _double_dash,
    "dash": lambda a, b: (_fraction(a) < 0.6) & (np.abs(b - 0.5) < 0.3),
}
