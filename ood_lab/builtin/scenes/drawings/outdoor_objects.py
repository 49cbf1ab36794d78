"""Drawers of vehicles, buildings and toys."""

from __future__ import annotations

import numpy as np

from ood_lab.builtin.scenes.drawings.colours import OWN_DARK
from ood_lab.builtin.scenes.drawings.painted_parts import Part, both, polygon
from ood_lab.builtin.vessels.drawings.figure import Proportions
from ood_lab.builtin.vessels.drawings.signed_distances import (
    Array,
    box,
    capsule,
    ellipse,
    ring,
    union,
)


def car(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A car from the side."""
    body = box(u, v, (0.0, -0.14), (0.86, 0.19))
    cabin = polygon(u, v, (-0.56, 0.0), (0.5, 0.0), (0.26, 0.42 + 0.03 * p[0]), (-0.36, 0.42))
    glass = polygon(u, v, (-0.44, 0.04), (0.38, 0.04), (0.2, 0.33), (-0.3, 0.33))
    post = both(glass, np.abs(u + 0.04) - 0.05)
    wheel = ellipse(np.abs(u), v, (0.48, -0.34), (0.22, 0.22))
    hub = ellipse(np.abs(u), v, (0.48, -0.34), (0.1, 0.1))
    light = ellipse(u, v, (-0.8, -0.1), (0.07, 0.07))
    return [
        Part(union(body, cabin)),
        Part(glass, "window"),
        Part(post),
        Part(wheel, "dark"),
        Part(hub, "steel"),
        Part(light, "glow"),
    ]


def bicycle(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A bicycle from the side."""
    wheels = ring(np.abs(u), v, (0.54, -0.24), (0.32, 0.32), 0.055)
    tubes = [
        capsule(u, v, start, end, 0.05)
        for start, end in (
            ((-0.54, -0.24), (-0.26, 0.24)),
            ((-0.26, 0.24), (0.32, 0.28)),
            ((-0.26, 0.24), (0.02, -0.26)),
            ((0.02, -0.26), (0.32, 0.28)),
            ((0.02, -0.26), (-0.54, -0.24)),
            ((0.54, -0.24), (0.3, 0.4)),
        )
    ]
    bars = union(
        capsule(u, v, (0.3, 0.4), (0.5, 0.48), 0.05),
        capsule(u, v, (-0.42, 0.34), (-0.16, 0.34), 0.07),
    )
    return [Part(wheels, "dark"), Part(union(*tubes)), Part(bars, "dark")]


def boat(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A sailing boat with a white sail."""
    hull = polygon(u, v, (-0.5, -0.66), (0.48, -0.66), (0.8, -0.3), (-0.8, -0.3))
    mast = box(u, v, (-0.02, 0.2), (0.04, 0.56))
    sail = polygon(u, v, (0.06, -0.18), (0.66, -0.18), (0.06, 0.72 + 0.04 * p[0]))
    jib = polygon(u, v, (-0.56, -0.18), (-0.1, -0.18), (-0.1, 0.5))
    stripe = both(hull, np.abs(v + 0.38) - 0.04)
    return [
        Part(mast, "dark"),
        Part(union(sail, jib), "white"),
        Part(hull),
        Part(stripe, OWN_DARK),
    ]


def traffic_light(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A traffic light on a pole: ``red`` or ``green``."""
    case = box(u, v, (0.0, 0.3), (0.26, 0.56))
    pole = box(u, v, (0.0, -0.56), (0.07, 0.32))
    lamps = [ellipse(u, v, (0.0, y), (0.15, 0.15)) for y in (0.66, 0.3, -0.06)]
    red, amber, green = lamps
    return [
        Part(pole, "grey"),
        Part(case, "dark"),
        Part(amber, "grey"),
        Part(red, "red light" if state == "red" else "grey"),
        Part(green, "green light" if state == "green" else "grey"),
    ]


def house(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A house with a tiled roof, a door and a window."""
    wall = box(u, v, (0.0, -0.3), (0.62, 0.46))
    roof = polygon(u, v, (-0.82, 0.12), (0.82, 0.12), (0.0, 0.8 + 0.04 * p[0]))
    chimney = box(u, v, (0.42, 0.5), (0.09, 0.24))
    door = box(u, v, (-0.26, -0.48), (0.15, 0.28))
    window = box(u, v, (0.26, -0.24), (0.18, 0.16))
    return [
        Part(chimney, "brick"),
        Part(wall),
        Part(roof, "brick"),
        Part(door, "dark"),
        Part(window, "window"),
    ]


def tent(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A ridge tent: ``open``, the dark inside showing, or ``closed``."""
    cloth = polygon(u, v, (-0.86, -0.56), (0.86, -0.56), (0.0, 0.56 + 0.04 * p[0]))
    poles = capsule(np.abs(u), v, (0.0, 0.5), (0.12, 0.7), 0.04)
    if state == "open":
        inside = polygon(u, v, (-0.4, -0.58), (0.4, -0.58), (0.0, 0.34))
        flaps = polygon(np.abs(u), v, (0.4, -0.58), (0.56, -0.58), (0.02, 0.36))
        return [Part(poles, "wood"), Part(cloth), Part(inside, "dark"), Part(flaps, "cream")]
    seam = capsule(u, v, (0.0, -0.56), (0.0, 0.5), 0.035)
    ties = [capsule(u, v, (-0.1, y), (0.1, y), 0.03) for y in (-0.36, -0.12, 0.12)]
    return [Part(poles, "wood"), Part(cloth), Part(union(seam, *ties), OWN_DARK)]


def ball(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A beach ball with white stripes."""
    disc = ellipse(u, v, (0.0, 0.0), (0.76, 0.76))
    turn = 0.8 * p[0]
    along = float(np.cos(turn)) * u + float(np.sin(turn)) * v
    across = float(np.cos(turn)) * v - float(np.sin(turn)) * u
    # Meridians: ellipses through the poles.
    outer = ellipse(along, across, (0.0, 0.0), (0.54, 0.76))
    inner = ellipse(along, across, (0.0, 0.0), (0.2, 0.76))
    return [Part(disc), Part(outer, "white"), Part(inner)]


def kite(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A kite with a tail of bows."""
    lean = u + 0.1 * p[0] * v
    cloth = polygon(lean, v, (0.0, -0.3), (0.5, 0.32), (0.0, 0.82), (-0.5, 0.32))
    cross = both(cloth, np.minimum(np.abs(lean), np.abs(v - 0.32)) - 0.035)
    tail = [
        capsule(u, v, start, end, 0.03)
        for start, end in (((0.0, -0.3), (0.14, -0.54)), ((0.14, -0.54), (-0.06, -0.84)))
    ]
    bows = [ellipse(u, v, centre, (0.13, 0.06)) for centre in ((0.12, -0.52), (0.02, -0.72))]
    lower = both(cloth, v - 0.32)
    return [
        Part(union(*tail), "dark"),
        Part(union(*bows)),
        Part(cloth),
        Part(lower, OWN_DARK),
        Part(cross, "white"),
    ]
