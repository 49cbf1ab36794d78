"""Signed-distance primitives on the pixel grid: negative inside, in local units.

Every primitive takes the local coordinates ``u`` (right) and ``v`` (up), ``[H, W] float32``, and
returns a distance map of the same shape. The image spans [-1, 1] in both directions before the
pose of an object is applied.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: float32 throughout; numpy's stubs lose the precision in several operations.
Array = NDArray[np.floating[Any]]
#: Of the two coordinates.
Coordinates = tuple[float, float]

#: Height and width of every image in pixels.
SIZE = 64
PIXEL = 2.0 / SIZE
_PROFILE_STEPS = 128


@lru_cache(maxsize=256)
def square(size: int) -> tuple[Array, Array]:
    """Coordinates of every pixel of a square that spans [-1, 1]: right, up."""
    axis = ((np.arange(size) + 0.5) * (2.0 / size) - 1.0).astype(np.float32)
    x, y = np.meshgrid(axis, -axis)
    return x, y


def turned(x: Array, y: Array, angle: float, scale: float = 1.0) -> tuple[Array, Array]:
    """Coordinates ``(u, v)`` of an object that is turned by ``angle`` radians and scaled."""
    cos, sin = math.cos(angle) / scale, math.sin(angle) / scale
    return cos * x + sin * y, cos * y - sin * x


#: Horizontal and vertical position of every pixel of an image, to the right and upwards.
X, Y = square(SIZE)


@dataclass(frozen=True)
class Pose:
    """Where an object stands: rotation (radians), scale, and shift in image units."""

    angle: float
    scale: float
    dx: float
    dy: float

    def place(self) -> tuple[Array, Array]:
        """Returns the local coordinates ``(u, v)`` of every pixel."""
        return turned(X - self.dx, Y - self.dy, self.angle, self.scale)


def coverage(distance: Array, scale: float) -> Array:
    """Share of each pixel inside the shape, ``clip(1/2 - d * scale / pixel, 0, 1)``."""
    return np.clip(0.5 - distance * (scale / PIXEL), 0.0, 1.0)


def union(*distances: Array) -> Array:
    """Distance to the nearest of several shapes."""
    return reduce(np.minimum, distances)


def capsule(
    u: Array,
    v: Array,
    start: Coordinates,
    end: Coordinates,
    radius: float,
    end_radius: float | None = None,
) -> Array:
    """A rounded bar from ``start`` to ``end`` whose radius may change linearly."""
    du, dv = end[0] - start[0], end[1] - start[1]
    pu, pv = u - start[0], v - start[1]
    along = np.clip((pu * du + pv * dv) * (1.0 / (du * du + dv * dv)), 0.0, 1.0)
    pu = pu - along * du
    pv = pv - along * dv
    distance = np.sqrt(pu * pu + pv * pv)
    if end_radius is None:
        return distance - radius
    return distance - (radius + along * (end_radius - radius))


def ellipse(u: Array, v: Array, center: Coordinates, radii: Coordinates) -> Array:
    """A filled ellipse, ``(|p / r| - 1) * min(r)`` (exact for circles)."""
    pu, pv = (u - center[0]) * (1.0 / radii[0]), (v - center[1]) * (1.0 / radii[1])
    return (np.sqrt(pu * pu + pv * pv) - 1.0) * min(radii)


def ring(
    u: Array,
    v: Array,
    center: Coordinates,
    radii: Coordinates,
    thickness: float,
) -> Array:
    """The outline of an ellipse, ``thickness`` on either side."""
    return np.abs(ellipse(u, v, center, radii)) - thickness


def box(u: Array, v: Array, center: Coordinates, half: Coordinates) -> Array:
    """An axis-aligned rectangle with half sizes ``half``."""
    return np.maximum(np.abs(u - center[0]) - half[0], np.abs(v - center[1]) - half[1])


def both(*distances: Array) -> Array:
    """What several shapes have in common."""
    return reduce(np.maximum, distances)


def minus(distance: Array, *holes: Array) -> Array:
    """A shape without others."""
    return both(distance, *(-hole for hole in holes))


def rows(u: Array, v: Array, pitch: float, half: float) -> Array:
    """Horizontal strips of the whole width, ``pitch`` apart, ``half`` on either side."""
    return np.abs(np.mod(v, pitch) - pitch / 2) - half


def half_plane(u: Array, v: Array, through: Coordinates, normal: Coordinates) -> Array:
    """The side of a line away from ``normal``."""
    length = math.hypot(normal[0], normal[1])
    return (u - through[0]) * (normal[0] / length) + (v - through[1]) * (normal[1] / length)


def profile(u: Array, v: Array, heights: list[float], half_widths: list[float]) -> Array:
    """A body of revolution given by half widths at ascending heights (linear between them).

    ``d = max((|u| - w(v)) / sqrt(1 + w'(v)^2), bottom - v, v - top)``.
    """
    # Plain floats: a numpy float64 would turn every map into float64.
    bottom, top = float(heights[0]), float(heights[-1])
    levels = np.linspace(bottom, top, _PROFILE_STEPS + 1)
    widths = np.interp(levels, heights, half_widths)
    slope = np.diff(widths, append=widths[-1:]) * (_PROFILE_STEPS / (top - bottom))
    slope[-1] = slope[-2]
    # A table lookup is several times faster than interpolating every pixel.
    index = ((v - bottom) * (_PROFILE_STEPS / (top - bottom))).astype(np.intp)
    cosine = (1.0 / np.sqrt(1.0 + slope * slope)).astype(np.float32)
    side = np.abs(u) - widths.astype(np.float32).take(index, mode="clip")
    side *= cosine.take(index, mode="clip")
    return np.maximum(side, np.maximum(bottom - v, v - top))


def polygon(u: Array, v: Array, *corners: Coordinates) -> Array:
    """A convex polygon, its corners counter-clockwise: the largest distance to an edge."""
    edges = []
    for (x, y), (end_x, end_y) in zip(corners, (*corners[1:], corners[0]), strict=True):
        dx, dy = end_x - x, end_y - y
        length = math.hypot(dx, dy)
        edges.append((dy / length, -dx / length, (y * dx - x * dy) / length))
    normals = np.array(edges, np.float32)
    points = np.array([u, v]).reshape(2, -1)
    distances = normals[:, :2] @ points + normals[:, 2:]
    return distances.max(0).reshape(u.shape)


#: Three free proportions of an undated object, each in [-1, 1].
Proportions = tuple[float, float, float]


@dataclass(frozen=True)
class Figure:
    """The outline of an object and the place of its ornament, in local units.

    Attributes:
        solid: distance to the object, ``[H, W]``.
        belt_area: distance to the part that carries the ornament, ``[H, W]``.
        belt_bottom: lower edge of the ornament.
        belt_height: height of the ornament; 0 = blotches over the whole surface instead.
        half_width: half the width over which the ornament repeats.
    """

    solid: Array
    belt_area: Array
    belt_bottom: float
    belt_height: float
    half_width: float = 0.6


Drawer = Callable[[Array, Array, Proportions], Figure]
