"""Ding (legged cauldrons) and gui (footed tureens): sampled from a period, drawn as distances."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ood_lab.builtin.vessels.drawings.signed_distances import (
    Array,
    Figure,
    box,
    capsule,
    ellipse,
    profile,
    ring,
    union,
)
from ood_lab.builtin.vessels.periods import CATEGORIES, PERIODS
from ood_lab.common.random_streams import RandomStream
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


#: Ornaments of the belt, in the order of the periods whose main motif each is: from ``a`` (position
#: around the belt, one unit a repeat) and ``b`` (height, 0 = lower edge, 1 = upper edge) to marks.
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


#: Shape labels: category, the kind of leg (ding) or handle (gui), and the lid.
SHAPES = tuple(
    f"{lid} {body}"
    for body in (
        "cone-legged ding",
        "column-legged ding",
        "hoof-legged ding",
        "gui with plain handles",
        "gui with pendant handles",
    )
    for lid in ("open", "lidded")
)
#: Radii of a leg at its upper and lower end.
_LEGS = {"cone": (0.10, 0.03), "column": (0.07, 0.065), "hoof": (0.06, 0.045)}


@dataclass(frozen=True)
class Bronze:
    """One vessel: its labels and its measures (see ``Period``)."""

    category: int
    period: int
    leg: str
    ear: str
    pendant: bool
    lid: bool
    motif: str
    roundness: float
    depth: float
    half_width: float
    leg_length: float
    belt: float
    belt_height: float
    repeats: float

    @property
    def shape(self) -> int:
        """Index into ``SHAPES``: the lid varies fastest."""
        if CATEGORIES[self.category] == "ding":
            return 2 * list(_LEGS).index(self.leg) + self.lid
        return 6 + 2 * self.pendant + self.lid

    def attributes(self) -> dict[str, int]:
        """Characteristic labels, 0 or 1, by name."""
        ding = CATEGORIES[self.category] == "ding"
        flags = {f"leg_{leg}": ding and self.leg == leg for leg in _LEGS}
        flags |= {"foot_ring": not ding, "handle_pendant": not ding and self.pendant}
        flags |= {f"ear_{ear}": ding and self.ear == ear for ear in ("upright", "bent")}
        flags |= {"lid": self.lid}
        flags |= {f"motif_{motif}": self.motif == motif for motif in MOTIFS}
        return {name: int(flag) for name, flag in flags.items()}

    def figure(self, u: Array, v: Array) -> Figure:
        """Draws the vessel around the origin."""
        draw = (_ding, _gui)[self.category]
        return draw(self, np.abs(u), v)


def sample_bronze(rng: RandomStream, category: int, period: int) -> Bronze:
    """Draws one vessel of a period.

    Its measures deviate from the period's mean, and the ornament (chance 1/5), leg or ear (1/10
    each) may come from a neighbouring period.
    """
    mean = PERIODS[period]
    step = 1 if rng.random() < 0.5 else -1
    other = PERIODS[min(max(period + step, 0), len(PERIODS) - 1)]

    def borrowed(chance: float) -> bool:
        return rng.random() < chance

    def jitter(value: float, spread: float) -> float:
        return value * float(np.exp(spread * rng.standard_normal()))

    ding = CATEGORIES[category] == "ding"
    return Bronze(
        category=category,
        period=period,
        motif=(other if borrowed(0.20) else mean).motif,
        leg=(other if borrowed(0.10) else mean).leg,
        ear=(other if borrowed(0.10) else mean).ear,
        pendant=rng.random() < mean.pendant,
        lid=rng.random() < mean.lid,
        roundness=jitter(mean.roundness, 0.10),
        depth=jitter(mean.depth if ding else 0.9 * mean.depth, 0.065),
        half_width=jitter(0.6 if ding else 0.58, 0.05),
        leg_length=jitter(mean.leg_length, 0.10),
        belt=jitter(mean.belt, 0.08),
        belt_height=jitter(mean.belt_height, 0.08),
        repeats=jitter(mean.repeats, 0.065),
    )


def _figure(
    bronze: Bronze, u: Array, v: Array, rim: float, lip: float, parts: list[Array]
) -> Figure:
    """The belly with its rim and lid, and other parts.

    The belly is a superellipse: ``w(t) = W (1 - t^e)^(1/e)``, t = depth below the rim.
    """
    width, height = bronze.half_width, bronze.belt_height
    t = np.linspace(1.0, 0.0, 17)
    widths = width * (1.0 - t**bronze.roundness) ** (1.0 / bronze.roundness)
    belly = profile(u, v, list(rim - bronze.depth * t), list(widths + 0.02))
    parts.append(box(u, v, (0.0, rim), (width + lip, 0.03)))
    if bronze.lid:
        heights = [rim + 0.02, rim + 0.10, rim + 0.17, rim + 0.21]
        parts.append(profile(u, v, heights, [s * width for s in (1.0, 0.8, 0.5, 0.12)]))
        parts.append(ring(u, v, (0.0, rim + 0.27), (0.07, 0.07), 0.025))
    centre = rim - 0.04 - bronze.belt * 0.8 * bronze.depth
    return Figure(union(belly, *parts), belly, centre - height / 2, height, width)


def _ding(bronze: Bronze, u: Array, v: Array) -> Figure:
    width, depth, length = bronze.half_width, bronze.depth, bronze.leg_length
    top = 0.30 if bronze.lid or bronze.ear == "upright" else 0.24
    rim = (depth * 0.85 + length - top) / 2
    foot = rim - depth * 0.85 - length
    thick, thin = _LEGS[bronze.leg]
    hip = rim - 0.6 * depth
    parts = [
        capsule(u, v, (0.68 * width, hip), (0.74 * width, foot), thick, thin),
        capsule(u, v, (0.0, rim - 0.8 * depth), (0.0, foot - 0.02), thick, thin),
    ]
    if bronze.leg == "hoof":
        parts += [
            ellipse(u, v, (x, foot - y), (0.085, 0.045))
            for x, y in ((0.74 * width, 0.0), (0.0, 0.02))
        ]
    if bronze.ear == "upright":
        parts.append(ring(u, v, (0.78 * width, rim + 0.14), (0.09, 0.15), 0.032))
    else:
        elbow = (width + 0.17, rim - 0.02)
        parts.append(capsule(u, v, (width - 0.05, rim - 0.10), elbow, 0.04))
        parts.append(capsule(u, v, elbow, (width + 0.21, rim + 0.26), 0.035, 0.045))
    return _figure(bronze, u, v, rim, 0.06, parts)


def _gui(bronze: Bronze, u: Array, v: Array) -> Figure:
    width, depth = bronze.half_width, bronze.depth
    foot = 0.10 + 0.35 * bronze.leg_length
    top = 0.28 if bronze.lid else 0.05
    rim = (depth * 0.9 + foot - top) / 2
    bottom = rim - 0.9 * depth - foot
    spread, radius = 0.62 * width, min(0.17, 0.42 * depth)
    side, middle = width + 0.09, rim - 0.42 * depth
    parts = [
        profile(u, v, [bottom, bottom + 0.05, rim - 0.7 * depth], [spread, spread, 0.42 * width]),
        ring(u, v, (side, middle), (0.13, radius), 0.042),
    ]
    if bronze.pendant:
        low = middle - radius
        parts.append(capsule(u, v, (side, low), (side, low - 0.13), 0.04))
    return _figure(bronze, u, v, rim, 0.05, parts)
