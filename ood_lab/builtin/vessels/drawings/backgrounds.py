"""The background of the object: ``background(rng) -> [3, H, W]`` in [0, 1]."""

from __future__ import annotations

import colorsys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ood_lab.builtin.vessels.drawings.signed_distances import SIZE, Array, X, Y
from ood_lab.builtin.vessels.drawings.texture import smooth


def rgb(red: float, green: float, blue: float) -> Array:
    """A colour that broadcasts over an image, ``[3, 1, 1]``."""
    return np.array([red, green, blue], np.float32)[:, None, None]


def hue(value: float, saturation: float, brightness: float) -> Array:
    """An RGB colour ``[3, 1, 1]`` from hue, saturation and value."""
    return rgb(*colorsys.hsv_to_rgb(value % 1.0, saturation, brightness))


def _studio(rng: np.random.Generator) -> Array:
    level = rng.uniform(0.58, 0.9)
    slope = rng.uniform(-0.06, 0.06)
    grey = level + slope * X + rng.uniform(-0.02, 0.08) * Y
    return grey * rgb(1.0, 1.0, 0.975)


def _museum(rng: np.random.Generator) -> Array:
    dx, dy = X - rng.uniform(-0.2, 0.2), Y - rng.uniform(-0.2, 0.2)
    spot = np.maximum(1.0 - 0.3 * (dx * dx + dy * dy), 0.5)
    return spot * (rgb(1.0, 0.98, 1.04) * rng.uniform(0.18, 0.32))


def _indoor(rng: np.random.Generator) -> Array:
    wall, floor = hue(rng.random(), 0.45, 0.85), rgb(0.62, 0.36, 0.18)
    bars = np.mod(X * rng.uniform(3, 6) + rng.random(), 1.0) < 0.35
    planks = 0.8 + 0.25 * np.sin(Y * 70.0 + 3.0 * smooth(rng, 5))
    below = rng.uniform(-0.5, -0.2) > Y
    return np.where(below, floor * planks, wall * np.where(bars, np.float32(0.88), np.float32(1)))


def _outdoor(rng: np.random.Generator) -> Array:
    cloud = smooth(rng, 8)
    sky = rgb(0.36, 0.58, 0.92) * (1.0 - 0.6 * cloud) + 0.6 * cloud
    crest = rng.uniform(-0.4, 0.0) + 0.18 * np.sin(rng.uniform(2, 4) * X + rng.uniform(0, 6))
    grass = rgb(0.24, 0.58, 0.14) * (0.55 + 0.8 * smooth(rng, 12))
    return np.where(crest > Y, grass, sky)


def _dim(rng: np.random.Generator) -> Array:
    glow = 0.9 + 0.4 * Y * rng.uniform(-1, 1)
    return glow * (rgb(1.0, 0.86, 0.62) * rng.uniform(0.1, 0.3))


def _colourful(rng: np.random.Generator) -> Array:
    return np.clip(1.5 * smooth(rng, int(rng.integers(4, 7)), 3) - 0.25, 0.0, 1.0)


def _paper(rng: np.random.Generator) -> Array:
    return rgb(1.0, 0.985, 0.93) * rng.uniform(0.86, 0.96) + 0.03 * (smooth(rng, 16) - 0.5)


def _dark(rng: np.random.Generator) -> Array:
    return np.full((3, SIZE, SIZE), rng.uniform(0.0, 0.06), np.float32)


@dataclass(frozen=True)
class Background:
    """A background and the words for it in a caption (may be empty)."""

    place: str
    paint: Callable[[np.random.Generator], Array]


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
