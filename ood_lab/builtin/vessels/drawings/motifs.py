"""Ornament motifs: dark marks on the belt of a vessel.

A motif maps ``a`` (position around the belt, one unit a repeat) and ``b`` (height in the belt,
0 = lower edge, 1 = upper edge) to a boolean mark map.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ood_lab.builtin.vessels.drawings.signed_distances import Array
from ood_lab.schema.arrays import Bools

Marks = Bools
Motif = Callable[[Array, Array], Marks]


def _fraction(a: Array) -> Array:
    return a - np.floor(a)


def _string(a: Array, b: Array) -> Marks:
    return np.abs(np.abs(b - 0.5) - 0.32) < 0.15


def _bead(a: Array, b: Array) -> Marks:
    across, height = 2.0 * _fraction(a) - 1.0, 2.0 * b - 1.0
    radius = across * across + height * height
    return (radius < 0.12) | ((radius > 0.45) & (radius < 1.0))


def _thunder(a: Array, b: Array) -> Marks:
    square = np.maximum(np.abs(2.0 * _fraction(a) - 1.0), np.abs(2.0 * b - 1.0))
    return _fraction(square * 2.2) < 0.5


def _slant(a: Array, b: Array) -> Marks:
    return _fraction(a + 0.8 * b) < 0.45


def _zigzag(a: Array, b: Array) -> Marks:
    return np.abs(b - 0.2 - 0.6 * np.abs(2.0 * _fraction(a) - 1.0)) < 0.22


def _wave(a: Array, b: Array) -> Marks:
    return np.abs(b - 0.5 - 0.34 * np.sin(np.float32(2 * np.pi) * a)) < 0.2


def _checker(a: Array, b: Array) -> Marks:
    return (_fraction(a) < 0.5) ^ (_fraction(1.5 * b) < 0.5)


def _lattice(a: Array, b: Array) -> Marks:
    across = _fraction(a)
    return (np.abs(across - b) < 0.18) | (np.abs(across + b - 1.0) < 0.18)


def _teeth(a: Array, b: Array) -> Marks:
    return b > np.abs(2.0 * _fraction(a) - 1.0)


def _dash(a: Array, b: Array) -> Marks:
    return (_fraction(a) < 0.6) & (np.abs(b - 0.5) < 0.3)


def _double_dash(a: Array, b: Array) -> Marks:
    upper = b > 0.5
    return (_fraction(a + 0.5 * upper) < 0.55) & (np.abs(np.abs(b - 0.5) - 0.3) < 0.18)


#: The order is that of the periods whose main motif it is.
_NAMES = (
    *("string", "bead", "thunder", "slant", "zigzag", "wave", "checker", "lattice", "teeth"),
    *("double_dash", "dash"),
)
#: Motif name -> marks.
MOTIFS: dict[str, Motif] = {name: globals()[f"_{name}"] for name in _NAMES}
