"""Smooth random fields and small image filters, numpy only.

Images are kept channels first, ``[3, H, W]``: numpy is several times faster on long inner axes.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ood_lab.builtin.vessels.drawings.signed_distances import SIZE, Array


@lru_cache(maxsize=64)
def _upsampling(cells: int, size: int) -> Array:
    """Linear interpolation from ``cells`` knots to ``size`` pixels, ``[size, cells]``."""
    position = np.linspace(0, cells - 1, size)
    knots = np.arange(cells)
    return np.clip(1.0 - np.abs(position[:, None] - knots[None]), 0.0, 1.0).astype(np.float32)


def smooth(
    rng: np.random.Generator, cells: int, channels: int | None = None, size: int = SIZE
) -> Array:
    """Uniform noise on ``cells x cells`` knots, interpolated to ``[(channels, )size, size]``."""
    matrix = _upsampling(cells, size)
    if channels is None:
        return matrix @ rng.random((cells, cells), np.float32) @ matrix.T
    knots = rng.random((channels, cells, cells), np.float32)
    return matrix @ knots @ matrix.T


def grain(rng: np.random.Generator, amount: float, size: int = SIZE) -> Array:
    """White grey noise, uniform with standard deviation ``amount``, ``[size, size]``."""
    return (rng.random((size, size), np.float32) - 0.5) * (amount * 12**0.5)


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
