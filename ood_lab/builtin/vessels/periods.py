"""The dated classes: eleven periods in four dynasties, and how their vessels are made.

The label hierarchy is that of dated ritual bronzes; the typology (how belly, legs, ears, lid and
ornament drift with time) is stylised so that neighbouring periods overlap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Position = coarse label ``level_0``.
DYNASTIES = ("Shang", "Western Zhou", "Spring and Autumn", "Warring States")
CATEGORIES = ("ding", "gui")


@dataclass(frozen=True)
class Period:
    """Mean appearance of one period; lengths in units of half the vessel's drawing space.

    Attributes:
        name: class name.
        dynasty: index into ``DYNASTIES``.
        roundness: exponent of the belly's superellipse (1.5 pointed, 2 round, 4 boxy).
        depth: height of the belly.
        leg: ``cone``, ``column`` or ``hoof``.
        leg_length: free length of the legs of a ding; the foot of a gui follows it.
        ear: ``upright`` or ``bent``.
        pendant: share of gui whose handles carry a pendant.
        motif: main ornament.
        belt: centre of the ornament, share of the belly's depth below the rim.
        belt_height: height of the ornament.
        repeats: repeats of the ornament over the vessel's width.
        lid: share of vessels with a lid.
    """

    name: str
    dynasty: int
    roundness: float
    depth: float
    leg: str
    leg_length: float
    ear: str
    pendant: float
    motif: str
    belt: float
    belt_height: float
    repeats: float
    lid: float


#: Position = fine label ``level_1`` = the class.
PERIODS = (
    Period("early Shang", 0, 1.5, 0.66, "cone", 0.40, "upright", 0.1, "string", 0.20, 0.17, 5, 0),
    Period("late Shang", 0, 2.8, 0.58, "column", 0.44, "upright", 0.3, "bead", 0.34, 0.22, 6, 0),
    Period(
        "early Western Zhou", 1, 3.8, 0.52, "column", 0.46, "upright", 0.9, "thunder",
        0.30, 0.22, 6, 0,
    ),
    Period(
        "middle Western Zhou", 1, 3.0, 0.43, "column", 0.32, "upright", 0.9, "slant",
        0.26, 0.17, 8, 0.05,
    ),
    Period(
        "late Western Zhou", 1, 2.1, 0.47, "hoof", 0.35, "upright", 0.8, "zigzag",
        0.34, 0.19, 6, 0.15,
    ),
    Period(
        "early Spring and Autumn", 2, 2.1, 0.33, "hoof", 0.36, "bent", 0.3, "wave",
        0.38, 0.17, 5, 0.2,
    ),
    Period(
        "middle Spring and Autumn", 2, 2.5, 0.40, "hoof", 0.42, "bent", 0.1, "checker",
        0.40, 0.19, 9, 0.4,
    ),
    Period(
        "late Spring and Autumn", 2, 2.3, 0.50, "hoof", 0.46, "bent", 0.1, "lattice",
        0.46, 0.19, 8, 0.6,
    ),
    Period(
        "early Warring States", 3, 1.9, 0.56, "hoof", 0.58, "bent", 0, "teeth",
        0.34, 0.22, 9, 0.8,
    ),
    Period(
        "middle Warring States", 3, 2.0, 0.52, "hoof", 0.44, "bent", 0, "double_dash",
        0.45, 0.20, 7, 0.9,
    ),
    Period(
        "late Warring States", 3, 1.8, 0.40, "hoof", 0.26, "bent", 0, "dash",
        0.48, 0.15, 6, 1,
    ),
)  # fmt: skip

CLASSES = [period.name for period in PERIODS]

# A stylised archaeological record, ding above gui: late Shang and early Western Zhou dominate
# (about 45 times the rarest), the first and the last periods are rare, and gui fade after the
# Western Zhou.
_RECORD = np.array(
    [
        [60, 900, 860, 320, 300, 170, 280, 310, 190, 40, 70],
        [30, 520, 640, 380, 290, 70, 40, 50, 40, 20, 20],
    ],
    dtype=np.float64,
)
#: Weights ``[2, 11]`` over (category, period) by name; None = all pairs in turn.
PRIORS: dict[str, NDArray[np.float64] | None] = {"balanced": None, "paper": _RECORD}
