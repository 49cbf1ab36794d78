"""The dated classes: eleven periods in four dynasties, and how their vessels are made.

The label hierarchy is that of dated ritual bronzes; the typology (how belly, legs, ears, lid and
ornament drift with time) is stylised so that neighbouring periods overlap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ood_lab.common.files import packaged_table
from ood_lab.schema.arrays import Floats

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
PERIODS = tuple(Period(**entry) for entry in packaged_table(__package__, "periods.yaml"))

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
PRIORS: dict[str, Floats | None] = {"balanced": None, "paper": _RECORD}
