"""Semantic levels 2 (containers) and 3 (tools and furniture)."""

from __future__ import annotations

import numpy as np

from ood_lab.builtin.vessels.drawings.figure import Figure, Proportions
from ood_lab.builtin.vessels.drawings.signed_distances import (
    Array,
    box,
    capsule,
    ellipse,
    profile,
    ring,
    union,
)


def bottle(u: Array, v: Array, p: Proportions) -> Figure:
    """A bottle with a straight neck."""
    wide, neck = 0.30 + 0.04 * p[0], 0.11 + 0.02 * p[1]
    heights = [-0.78, -0.74, 0.12, 0.3, 0.42, 0.8]
    body = profile(u, v, heights, [wide - 0.04, wide, wide, 0.7 * wide, neck, neck])
    return Figure(body, body, -0.135 + 0.1 * p[2], 0.2, wide)


def goblet(u: Array, v: Array, p: Proportions) -> Figure:
    """A wine glass."""
    wide = 0.38 + 0.05 * p[0]
    cup = profile(u, v, [-0.1, 0.0, 0.24, 0.68], [0.06, 0.26, wide, wide - 0.05 + 0.03 * p[1]])
    stem = box(u, v, (0.0, -0.38), (0.04, 0.34))
    foot = ellipse(u, v, (0.0, -0.74), (0.32, 0.06))
    return Figure(union(cup, stem, foot), cup, 0.205 + 0.08 * p[2], 0.2, wide)


def bucket(u: Array, v: Array, p: Proportions) -> Figure:
    """A bucket with a bail handle."""
    wide = 0.44 + 0.04 * p[0]
    body = profile(u, v, [-0.7, 0.16], [0.68 * wide, wide])
    rim = box(u, v, (0.0, 0.16), (wide + 0.04, 0.04))
    bail = ring(u, v, (0.0, 0.16), (wide, 0.5 + 0.06 * p[1]), 0.03)
    solid = union(body, rim, np.maximum(bail, 0.16 - v))
    return Figure(solid, body, -0.235 + 0.1 * p[2], 0.2, wide)


def flask(u: Array, v: Array, p: Proportions) -> Figure:
    """A conical flask with a lipped neck."""
    wide, neck = 0.54 + 0.05 * p[0], 0.12 + 0.02 * p[1]
    body = profile(u, v, [-0.68, -0.56, 0.2, 0.62], [wide - 0.05, wide, neck, neck])
    lip = box(u, v, (0.0, 0.64), (neck + 0.06, 0.04))
    return Figure(union(body, lip), body, -0.435 + 0.08 * p[2], 0.2, 0.4)


def bell(u: Array, v: Array, p: Proportions) -> Figure:
    """A hand bell with a loop and a clapper."""
    wide = 0.5 + 0.04 * p[0]
    heights = [-0.5, -0.4, -0.1, 0.24, 0.4, 0.46]
    body = profile(u, v, heights, [wide, 0.42, 0.32, 0.28, 0.2, 0.06])
    loop = ring(u, v, (0.0, 0.58), (0.11, 0.13), 0.04)
    clapper = ellipse(u, v, (0.06 * p[1], -0.56), (0.11, 0.11))
    return Figure(union(body, loop, clapper), body, -0.225 + 0.1 * p[2], 0.15, 0.34)


def axe(u: Array, v: Array, p: Proportions) -> Figure:
    """A felling axe."""
    haft = capsule(u, v, (-0.22, -0.76), (-0.02 + 0.04 * p[0], 0.7), 0.055, 0.05)
    # The blade widens to the right: a profile along u instead of v.
    blade = profile(v - 0.42, u, [-0.16, 0.1, 0.46, 0.54], [0.15, 0.13, 0.34 + 0.04 * p[1], 0.26])
    return Figure(union(haft, blade), blade, 0.295 + 0.06 * p[2], 0.15, 0.4)


def sword(u: Array, v: Array, p: Proportions) -> Figure:
    """A straight sword."""
    blade = profile(u, v, [-0.36, 0.6, 0.86], [0.085 + 0.015 * p[0], 0.065, 0.005])
    guard = box(u, v, (0.0, -0.4), (0.24 + 0.04 * p[1], 0.045))
    grip = box(u, v, (0.0, -0.6), (0.05, 0.2))
    pommel = ellipse(u, v, (0.0, -0.82), (0.09, 0.08))
    return Figure(union(blade, guard, grip, pommel), blade, -0.225 + 0.1 * p[2], 0.15, 0.1)


def lamp(u: Array, v: Array, p: Proportions) -> Figure:
    """A table lamp."""
    wide = 0.56 + 0.05 * p[0]
    shade = profile(u, v, [0.04, 0.66], [wide, 0.26 + 0.04 * p[1]])
    pole = box(u, v, (0.0, -0.3), (0.045, 0.4))
    foot = ellipse(u, v, (0.0, -0.7), (0.34, 0.08))
    return Figure(union(shade, pole, foot), shade, 0.135 + 0.08 * p[2], 0.15, wide)


def stool(u: Array, v: Array, p: Proportions) -> Figure:
    """A wooden stool."""
    u = np.abs(u)
    wide = 0.58 + 0.05 * p[0]
    seat = box(u, v, (0.0, 0.3), (wide, 0.11))
    leg = capsule(u, v, (wide - 0.14, 0.25), (wide - 0.02, -0.66), 0.05)
    rail = box(u, v, (0.0, -0.24 + 0.1 * p[1]), (wide - 0.1, 0.035))
    return Figure(union(seat, leg, rail), seat, 0.225 + 0.03 * p[2], 0.15, wide)
