"""Named streams of random numbers."""

from __future__ import annotations

from zlib import crc32

import numpy as np


def stream(seed: int, name: str, *numbers: int) -> np.random.Generator:
    """A generator for one purpose, independent of those of other names and numbers.

    ``SeedSequence(seed, spawn_key=(crc32(name), *numbers))``. Seeds that are lists are no
    substitute: ``default_rng([0, 0])`` equals ``default_rng(0)``, as NumPy pads with zeros.

    Args:
        seed: of everything that is drawn; from 0.
        name: of the purpose.
        numbers: tell apart the draws for one purpose, as the row of an image does; from 0.
    """
    key = (crc32(name.encode()), *numbers)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
