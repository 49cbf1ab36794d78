"""How expected an object is among others: P(object | context) from annotations.

``P(o | S) = mean over c in S of n(o, c) / n(c)`` with the numbers of images that have ``c``, and
``o`` and ``c``. Both skip the image in question: else a combination that occurs nowhere
else would be the more expected the rarer its parts are. Where ``c`` occurs in no other image, the
share of the other images that have ``o`` stands for it, and so it does where ``S`` is empty.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ood_lab.schema.arrays import Bools, Floats, Ints


def pair_counts(present: Bools) -> NDArray[np.float32]:
    """Images that have both of two categories, ``[n, n]``, exact below 2^24 images.

    Args:
        present: ``[N, n]``.
    """
    seen = present.astype(np.float32)
    found: NDArray[np.float32] = seen.T @ seen
    return found


class Cooccurrence:
    """Counts of categories in N images.

    Args:
        present: ``[N, n]``.
    """

    def __init__(self, present: Bools) -> None:
        self.present = present
        self._both = pair_counts(present).astype(np.float64)

    def expected(self, rows: Ints, context: Bools) -> Floats:
        """``P(o | S)`` of every category, ``[B, n]``.

        Args:
            rows: the B images.
            context: the categories ``S`` of each, ``[B, n]``; an object is no context of itself,
                so its own column is ignored.
        """
        there = self.present[rows]
        absent, found = self._given(0.0), self._given(1.0)
        weights = context.astype(np.float64)
        own = np.diag(absent)[None] * weights, np.diag(found)[None] * weights
        sums = np.where(there, weights @ found - own[1], weights @ absent - own[0])
        sizes = weights.sum(axis=1, keepdims=True) - weights
        others = max(len(self.present) - 1, 1)
        prior = (np.diag(self._both)[None] - there) / others
        return np.where(sizes > 0, sums / np.maximum(sizes, 1), prior)

    def _given(self, here: float) -> Floats:
        """``P(o | c)`` at ``[c, o]`` without an image that has ``c``, and ``o`` if ``here`` = 1."""
        alone = np.diag(self._both)
        others = max(len(self.present) - 1, 1)
        prior = (alone[None] - here) / others
        times = (alone - 1)[:, None]
        return np.where(times > 0, (self._both - here) / np.maximum(times, 1), prior)
