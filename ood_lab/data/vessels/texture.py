"""Smooth random fields and small image filters, numpy only."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ood_lab.data.vessels.sdf import SIZE, Array


@lru_cache(maxsize=32)
def _upsampling(cells: int) -> Array:
    """Linear interpolation from ``cells`` knots to ``SIZE`` pixels, ``[SIZE, cells]``."""
    position = np.linspace(0, cells - 1, SIZE)
    knots = np.arange(cells)
    return np.clip(1.0 - np.abs(position[:, None] - knots[None]), 0.0, 1.0).astype(np.float32)


def smooth(rng: np.random.Generator, cells: int, channels: int | None = None) -> Array:
    """Uniform noise on a ``cells x cells`` lattice, interpolated: ``[H, W(, channels)]`` in [0, 1]."""
    matrix = _upsampling(cells)
    if channels is None:
        return matrix @ rng.random((cells, cells), np.float32) @ matrix.T
    knots = rng.random((channels, cells, cells), np.float32)
    return np.ascontiguousarray((matrix @ knots @ matrix.T).transpose(1, 2, 0))


def grain(rng: np.random.Generator, amount: float) -> Array:
    """White grey noise with standard deviation ``amount``, ``[H, W, 1]``."""
    return rng.standard_normal((SIZE, SIZE, 1), np.float32) * amount


def blur(image: Array, passes: int) -> Array:
    """``passes`` rounds of the separable [1, 2, 1] / 4 filter (variance 1/2 pixel^2 a round)."""
    for axis in (0, 1):
        for _ in range(passes):
            padded = np.concatenate(
                [image.take([0], axis), image, image.take([SIZE - 1], axis)], axis
            )
            before, middle, after = (
                padded[k : k + SIZE] if axis == 0 else padded[:, k : k + SIZE] for k in range(3)
            )
            image = 0.25 * (before + after) + 0.5 * middle
    return image


def pixelate(image: Array, block: int) -> Array:
    """Means over ``block x block`` tiles, written back at full size."""
    count = SIZE // block
    small = image.reshape(count, block, count, block, -1).mean((1, 3))
    return small.repeat(block, 0).repeat(block, 1).reshape(image.shape)


def edges(alpha: Array) -> Array:
    """Gradient magnitude of a coverage map, about 1 on an outline."""
    dv = np.zeros_like(alpha)
    du = np.zeros_like(alpha)
    dv[1:-1] = alpha[2:] - alpha[:-2]
    du[:, 1:-1] = alpha[:, 2:] - alpha[:, :-2]
    return np.clip(np.sqrt(du * du + dv * dv), 0.0, 1.0)
