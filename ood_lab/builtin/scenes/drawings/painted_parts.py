"""What the drawers of scenes return: parts painted one over the other, each with its tone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ood_lab.builtin.scenes.drawings.colours import OWN, OWN_DARK
from ood_lab.builtin.vessels.drawings.figure import Drawer, Proportions
from ood_lab.builtin.vessels.drawings.signed_distances import Array


class Part(NamedTuple):
    """One part of an object.

    Attributes:
        distance: signed distance, negative inside, in local units, ``[H, W]``.
        tone: its colour, see :func:`~ood_lab.builtin.scenes.drawings.colours.tones`.
    """

    distance: Array
    tone: str = OWN


#: Local coordinates (right, up), proportions in [-1, 1] and the state in words → parts, back to
#: front.
PartsDrawer = Callable[[Array, Array, Proportions, str], list[Part]]


def minus(distance: Array, *holes: Array) -> Array:
    """A shape without others."""
    for hole in holes:
        distance = np.maximum(distance, -hole)
    return distance


def both(*distances: Array) -> Array:
    """What several shapes have in common."""
    common = distances[0]
    for distance in distances[1:]:
        common = np.maximum(common, distance)
    return common


def polygon(u: Array, v: Array, *corners: tuple[float, float]) -> Array:
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


def two_tone(draw: Drawer, rest: str = OWN_DARK, main: str = OWN) -> PartsDrawer:
    """A drawer of the vessels: the part that carries ornament in one tone, the rest in another."""

    def parts(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
        figure = draw(u, v, p)
        return [Part(figure.solid, rest), Part(figure.belt_area, main)]

    return parts


def on_plate(draw: Drawer) -> PartsDrawer:
    """A pattern of the vessels on a square white plate."""

    def parts(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
        plate = np.maximum(np.abs(u), np.abs(v)) - 0.72
        # The pattern is drawn coarser than on a whole image: it has to be seen on few pixels.
        figure = draw(u * 0.7, v * 0.7, p)
        return [Part(plate, "white"), Part(both(figure.solid, plate + 0.06))]

    return parts
