"""Smooth random fields, image filters, and the backgrounds of vessels made of them.

Images are kept channels first, ``[3, H, W]``: numpy is several times faster on long inner axes.
"""

from __future__ import annotations

import colorsys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ood_lab.builtin.vessels.drawings.signed_distances import SIZE, Array, X, Y
from ood_lab.common.random_streams import RandomStream


@lru_cache(maxsize=64)
def _upsampling(cells: int, size: int) -> Array:
    """Linear interpolation from ``cells`` knots to ``size`` pixels, ``[size, cells]``."""
    position = np.linspace(0, cells - 1, size)
    knots = np.arange(cells)
    return np.clip(1.0 - np.abs(position[:, None] - knots[None]), 0.0, 1.0).astype(np.float32)


def smooth(rng: RandomStream, cells: int, channels: int | None = None, size: int = SIZE) -> Array:
    """Uniform noise on ``cells x cells`` knots, interpolated to ``[(channels, )size, size]``."""
    matrix = _upsampling(cells, size)
    if channels is None:
        return matrix @ rng.random((cells, cells), np.float32) @ matrix.T
    knots = rng.random((channels, cells, cells), np.float32)
    return matrix @ knots @ matrix.T


def blur(image: Array, passes: int) -> Array:
    """``passes`` rounds of the separable [1, 2, 1] / 4 filter (variance 1/2 pixel^2 a round)."""
    for _ in range(passes):
        for _axis in range(2):
            # Filters the rows, then turns: two rounds restore the orientation.
            image = image.swapaxes(-1, -2)
            left = np.concatenate([image[..., :1], image[..., :-1]], -1)
            right = np.concatenate([image[..., 1:], image[..., -1:]], -1)
            image = 0.25 * (left + right) + 0.5 * image
    return image


def pixelate(image: Array, block: int) -> Array:
    """Means over ``block x block`` tiles of a square image, written back at full size."""
    count = image.shape[-1] // block
    small = image.reshape(-1, count, block, count, block).mean((2, 4))
    return small.repeat(block, 1).repeat(block, 2).reshape(image.shape)


def edges(alpha: Array) -> Array:
    """Gradient magnitude of a coverage map, about 1 on an outline."""
    dv = np.zeros_like(alpha)
    du = np.zeros_like(alpha)
    dv[1:-1] = alpha[2:] - alpha[:-2]
    du[:, 1:-1] = alpha[:, 2:] - alpha[:, :-2]
    return np.clip(np.sqrt(du * du + dv * dv), 0.0, 1.0)


def rgb(red: float, green: float, blue: float) -> Array:
    """A colour that broadcasts over an image, ``[3, 1, 1]``."""
    return np.array([red, green, blue], np.float32)[:, None, None]


def hue(value: float, saturation: float, brightness: float) -> Array:
    """An RGB colour ``[3, 1, 1]`` from hue, saturation and value."""
    return rgb(*colorsys.hsv_to_rgb(value % 1.0, saturation, brightness))


def _studio(rng: RandomStream) -> Array:
    level = rng.uniform(0.58, 0.9)
    slope = rng.uniform(-0.06, 0.06)
    grey = level + slope * X + rng.uniform(-0.02, 0.08) * Y
    return grey * rgb(1.0, 1.0, 0.975)


def _museum(rng: RandomStream) -> Array:
    dx, dy = X - rng.uniform(-0.2, 0.2), Y - rng.uniform(-0.2, 0.2)
    spot = np.maximum(1.0 - 0.3 * (dx * dx + dy * dy), 0.5)
    return spot * (rgb(1.0, 0.98, 1.04) * rng.uniform(0.18, 0.32))


def _indoor(rng: RandomStream) -> Array:
    wall, floor = hue(rng.random(), 0.45, 0.85), rgb(0.62, 0.36, 0.18)
    bars = np.mod(X * rng.uniform(3, 6) + rng.random(), 1.0) < 0.35
    planks = 0.8 + 0.25 * np.sin(Y * 70.0 + 3.0 * smooth(rng, 5))
    below = rng.uniform(-0.5, -0.2) > Y
    return np.where(below, floor * planks, wall * np.where(bars, np.float32(0.88), np.float32(1)))


def _outdoor(rng: RandomStream) -> Array:
    cloud = smooth(rng, 8)
    sky = rgb(0.36, 0.58, 0.92) * (1.0 - 0.6 * cloud) + 0.6 * cloud
    crest = rng.uniform(-0.4, 0.0) + 0.18 * np.sin(rng.uniform(2, 4) * X + rng.uniform(0, 6))
    grass = rgb(0.24, 0.58, 0.14) * (0.55 + 0.8 * smooth(rng, 12))
    return np.where(crest > Y, grass, sky)


def _dim(rng: RandomStream) -> Array:
    glow = 0.9 + 0.4 * Y * rng.uniform(-1, 1)
    return glow * (rgb(1.0, 0.86, 0.62) * rng.uniform(0.1, 0.3))


def _colourful(rng: RandomStream) -> Array:
    return np.clip(1.5 * smooth(rng, int(rng.integers(4, 7)), 3) - 0.25, 0.0, 1.0)


def _paper(rng: RandomStream) -> Array:
    return rgb(1.0, 0.985, 0.93) * rng.uniform(0.86, 0.96) + 0.03 * (smooth(rng, 16) - 0.5)


def _dark(rng: RandomStream) -> Array:
    return np.full((3, SIZE, SIZE), rng.uniform(0.0, 0.06), np.float32)


@dataclass(frozen=True)
class Background:
    """A background and the words for it in a caption (may be empty)."""

    place: str
    paint: Callable[[RandomStream], Array]


BACKGROUNDS: dict[str, Background] = {
    "studio": Background("in a studio", _studio),
    "museum": Background("in a museum", _museum),
    "indoor": Background("in a room", _indoor),
    "outdoor": Background("outdoors", _outdoor),
    "dim": Background("in the dark", _dim),
    "colourful": Background("in a colourful scene", _colourful),
    "paper": Background("", _paper),
    "dark": Background("", _dark),
}
