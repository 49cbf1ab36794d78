"""Boxes in space, seen by a camera on a car."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.spatial.transform import Rotation

Vector = tuple[float, float, float]
Quaternion = tuple[float, float, float, float]
#: Corners of a box of side 2.
_CORNERS = np.array(list(product((-1.0, 1.0), repeat=3)))


@dataclass(frozen=True)
class Camera:
    """A pinhole camera at one moment.

    Attributes:
        car: position (metres) and orientation (quaternion w, x, y, z) of the car in the world.
        mount: those of the camera on the car.
        intrinsic: ``[3, 3]``, from camera coordinates (z forward) to pixels.
        size: width and height of the image, pixels.
    """

    car: tuple[Vector, Quaternion]
    mount: tuple[Vector, Quaternion]
    intrinsic: np.ndarray
    size: tuple[int, int]


def visible_boxes(
    centres: np.ndarray, sizes: np.ndarray, rotations: np.ndarray, camera: Camera
) -> np.ndarray:
    """Left, top, width and height of boxes in the image, ``[N, 4]``; NaN = not in it.

    The bounding rectangle of (convex hull of the projections of those corners that are in front
    of the camera) ∩ (image).

    Args:
        centres: in the world, metres, ``[N, 3]``.
        sizes: width, length and height, metres, ``[N, 3]``; the length is along the box's own x.
        rotations: quaternions w, x, y, z, ``[N, 4]``.
        camera: who looks.
    """
    import shapely

    half = 0.5 * sizes[:, None, [1, 0, 2]]
    points = np.einsum("nij,nkj->nki", _matrix(rotations), _CORNERS * half) + centres[:, None]
    for position, orientation in (camera.car, camera.mount):
        # Times a rotation from the right: turned back.
        points = (points - np.array(position)) @ _matrix(np.array([orientation]))[0]
    box, corner = np.nonzero(points[..., 2] > 0)
    pixels = points[box, corner] @ camera.intrinsic.T
    hulls = shapely.convex_hull(
        shapely.multipoints(
            shapely.points(pixels[:, :2] / pixels[:, 2:]),
            indices=box,
            out=np.full(len(sizes), None),
        )
    )
    seen = shapely.clip_by_rect(hulls, 0, 0, *camera.size)
    left, top, right, bottom = shapely.bounds(seen).T
    found = np.stack([left, top, right - left, bottom - top], 1)
    found[~(shapely.area(seen) > 0)] = np.nan
    return found


def _matrix(quaternions: np.ndarray) -> np.ndarray:
    """Rotation matrices ``[N, 3, 3]`` of quaternions w, x, y, z."""
    matrices: np.ndarray = Rotation.from_quat(quaternions[:, [1, 2, 3, 0]]).as_matrix()
    return matrices
