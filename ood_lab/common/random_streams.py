"""Named streams of random numbers: two uses of one seed never draw the same numbers."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from ood_lab.common.file_records import text_sha256

RandomStream = np.random.Generator


@dataclass(frozen=True)
class Resampling:
    """How often a bootstrap resamples, and the seed of its random numbers."""

    draws: int = 1000
    seed: int = 0


def stream(seed: int, name: str, *numbers: int) -> RandomStream:
    """The random numbers of one use of a seed.

    ``SeedSequence(seed, spawn_key=(crc32(name), *numbers))``: numpy fills short keys with zeros, so
    that ``default_rng(0)`` and ``default_rng([0, 0])`` draw the same; a spawn key does not.

    Args:
        seed: of the run, >= 0.
        name: what is drawn.
        numbers: what tells several draws of one name apart, each >= 0.
    """
    key = (zlib.crc32(name.encode()), *numbers)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def text_stream(seed: int, *texts: str) -> RandomStream:
    """The random numbers of one use of a seed, which texts of any length tell apart.

    Its state is the start of the SHA-256 of ``seed/text/...``: older than :func:`stream`, and kept
    so that what was drawn is drawn again.
    """
    digest = text_sha256("/".join([str(seed), *texts]))
    return np.random.default_rng(int(digest[:16], 16))
