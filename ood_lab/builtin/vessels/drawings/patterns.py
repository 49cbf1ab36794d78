"""Things that nouns.yaml does not describe: a flower, and patterns over the whole image."""

from __future__ import annotations

import math

import numpy as np

from ood_lab.builtin.vessels.drawings.figure import Figure, Proportions
from ood_lab.builtin.vessels.drawings.signed_distances import Array, box, capsule, union

_TURN = 2 * math.pi


def _plain(solid: Array) -> Figure:
    """No belt: the ornament of these figures is a texture over the whole surface."""
    return Figure(solid, solid, 0.0, 0.0)


def flower(u: Array, v: Array, p: Proportions) -> Figure:
    """A flower with petals, stem and leaf."""
    centre, petals = (0.0, 0.3), 5 + round(p[0] + 1)
    du, dv = u - centre[0], v - centre[1]
    angle = np.arctan2(dv, du)
    radius = np.sqrt(du * du + dv * dv)
    lobes = 0.3 + 0.14 * np.cos(petals * angle + np.float32(p[1]))
    stem = capsule(u, v, (0.04 * p[2], -0.78), centre, 0.04)
    leaf = capsule(u, v, (0.02, -0.5), (0.3, -0.28), 0.05, 0.02)
    return _plain(union((radius - lobes) * 0.6, stem, leaf))


def stripe_pattern(u: Array, v: Array, p: Proportions) -> Figure:
    """Parallel bars across the whole image."""
    angle, pitch = math.pi * p[0], 0.36 + 0.08 * p[1]
    across = math.cos(angle) * u + math.sin(angle) * v + 0.2 * p[2]
    return _plain(np.abs(np.mod(across, pitch) - pitch / 2) - pitch / 4)


def checkerboard(u: Array, v: Array, p: Proportions) -> Figure:
    """Alternating squares across the whole image."""
    wave = math.pi / (0.28 + 0.06 * p[0])
    marks = np.sin(wave * (u + 0.2 * p[1])) * np.sin(wave * (v + 0.2 * p[2]))
    return _plain(marks * (1.0 / wave))


def spiral(u: Array, v: Array, p: Proportions) -> Figure:
    """An Archimedean spiral."""
    pitch = 0.34 + 0.06 * p[0]
    radius = np.sqrt(u * u + v * v)
    turn = np.arctan2(v, u if p[1] > 0 else -u) * (1.0 / _TURN) + 0.5 * p[2]
    return _plain(np.abs(np.mod(radius * (1.0 / pitch) - turn, 1.0) - 0.5) * pitch - pitch / 4)


def ring_pattern(u: Array, v: Array, p: Proportions) -> Figure:
    """Concentric rings."""
    pitch = 0.34 + 0.06 * p[0]
    du, dv = u - 0.15 * p[1], v - 0.15 * p[2]
    radius = np.sqrt(du * du + dv * dv)
    return _plain(np.abs(np.mod(radius, pitch) - pitch / 2) - pitch / 4)


def glyph_grid(u: Array, v: Array, p: Proportions) -> Figure:
    """A grid of small signs, each crossed strokes at its own slant."""
    pitch = 0.44 + 0.04 * p[0]
    column, row = np.floor(u * (1.0 / pitch) + 0.5), np.floor(v * (1.0 / pitch) + 0.5)
    du, dv = u - column * pitch, v - row * pitch
    slant = 2.4 * column + 1.3 * row + 3.0 * p[1]
    strokes = []
    # The second stroke is not square to the first, so that signs differ when mirrored.
    for angle, half in ((slant, 0.15), (slant + 1.0 + 0.4 * p[2], 0.1)):
        cos, sin = np.cos(angle), np.sin(angle)
        strokes.append(box(cos * du + sin * dv, cos * dv - sin * du, (0.0, 0.0), (half, 0.035)))
    return _plain(union(*strokes))
