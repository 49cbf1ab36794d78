"""Semantic level 1: archaic vessels and household vessels that resemble them."""

from __future__ import annotations

import numpy as np

from ood_lab.builtin.vessels.drawings.figure import Figure, Proportions
from ood_lab.builtin.vessels.drawings.signed_distances import (
    Array,
    box,
    capsule,
    profile,
    ring,
    union,
)


def hu(u: Array, v: Array, p: Proportions) -> Figure:
    """A jar with a long neck and two ears."""
    u = np.abs(u)
    wide = 0.48 + 0.05 * p[0]
    heights = [-0.72, -0.64, -0.3, -0.02, 0.28, 0.5, 0.74]
    body = profile(u, v, heights, [0.32, 0.3, wide, wide, 0.22, 0.2, 0.3])
    ears = ring(u, v, (0.34 + 0.02 * p[1], 0.3), (0.10, 0.13), 0.03)
    return Figure(union(body, ears), body, -0.18 + 0.06 * p[2], 0.24, wide)


def zun(u: Array, v: Array, p: Proportions) -> Figure:
    """A trumpet-mouthed beaker."""
    heights = [-0.74, -0.6, -0.22, 0.0, 0.18, 0.5, 0.74]
    mouth = 0.62 + 0.06 * p[0]
    body = profile(u, v, heights, [0.42, 0.34, 0.28, 0.34 + 0.04 * p[1], 0.26, 0.4, mouth])
    return Figure(body, body, -0.14 + 0.05 * p[2], 0.24, 0.34)


def jue(u: Array, v: Array, p: Proportions) -> Figure:
    """A three-legged spouted cup."""
    wide = 0.42 + 0.04 * p[0]
    body = profile(u, v, [-0.26, -0.18, 0.0, 0.26], [0.1, 0.28, wide - 0.02, wide])
    spout = capsule(u, v, (wide - 0.1, 0.2), (0.76, 0.42 + 0.06 * p[1]), 0.11, 0.05)
    posts = capsule(np.abs(u), v, (0.2, 0.24), (0.2, 0.5), 0.035)
    handle = ring(u, v, (-wide - 0.08, 0.04), (0.12, 0.15), 0.035)
    splay = 0.34 + 0.03 * p[2]
    legs = [capsule(u, v, (0.8 * x, -0.08), (x, -0.68), 0.085, 0.035) for x in (-splay, 0.0, splay)]
    return Figure(union(body, spout, posts, handle, *legs), body, 0.0, 0.24, wide)


def dou(u: Array, v: Array, p: Proportions) -> Figure:
    """A stemmed dish with ring handles."""
    wide = 0.54 + 0.04 * p[0]
    dish = profile(u, v, [-0.1, 0.0, 0.18, 0.38], [0.2, 0.42, wide - 0.02, wide])
    foot = profile(u, v, [-0.54, -0.48, -0.26, -0.02], [0.4 + 0.04 * p[1], 0.38, 0.22, 0.2])
    handles = ring(np.abs(u), v, (wide + 0.09, 0.2), (0.13, 0.16), 0.042)
    return Figure(union(dish, foot, handles), dish, 0.1 + 0.03 * p[2], 0.24, wide)


def bowl(u: Array, v: Array, p: Proportions) -> Figure:
    """An open bowl on a low foot."""
    wide, base = 0.6 + 0.04 * p[0], -0.28 - 0.05 * p[1]
    body = profile(u, v, [base, base + 0.16, 0.04, 0.3], [0.26, 0.46, wide - 0.03, wide])
    lip = box(u, v, (0.0, 0.3), (wide + 0.05, 0.03))
    foot = profile(u, v, [base - 0.16, base + 0.04], [0.36, 0.26])
    return Figure(union(body, lip, foot), body, 0.04 + 0.03 * p[2], 0.24, wide)


def teapot(u: Array, v: Array, p: Proportions) -> Figure:
    """A teapot with spout, handle and lid."""
    wide = 0.54 + 0.03 * p[0]
    body = profile(u, v, [-0.34, -0.26, -0.04, 0.22], [0.26, 0.42, wide, wide - 0.02])
    base = profile(u, v, [-0.46, -0.3], [0.36, 0.28])
    spout = capsule(u, v, (0.44, -0.08), (0.78, 0.2 + 0.06 * p[1]), 0.10, 0.045)
    handle = ring(u, v, (-0.62, 0.02), (0.13, 0.17), 0.042)
    lid = profile(u, v, [0.22, 0.29, 0.36, 0.4], [wide, 0.42, 0.24, 0.06])
    knob = ring(u, v, (0.0, 0.46), (0.07, 0.07), 0.025)
    return Figure(
        union(body, base, spout, handle, lid, knob), body, -0.08 + 0.03 * p[2], 0.24, wide
    )


def mug(u: Array, v: Array, p: Proportions) -> Figure:
    """A straight mug with one handle."""
    wide, tall = 0.36 + 0.04 * p[0], 0.46 + 0.05 * p[1]
    body = profile(u, v, [-tall, -tall + 0.06, tall], [wide - 0.04, wide, wide])
    handle = ring(u, v, (wide + 0.08, 0.02), (0.19, 0.26), 0.05)
    return Figure(union(body, handle), body, 0.08 + 0.06 * p[2], 0.24, wide)
