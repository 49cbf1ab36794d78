"""Mean average precision of multi-label predictions, with its bootstrap interval."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from ood_lab.common.random_streams import stream
from ood_lab.metrics.resampling.intervals import bootstrap_interval
from ood_lab.schema.arrays import Floats

#: Entries of the weights that are worked on together.
_BLOCK = 4_000_000


def mean_average_precision(
    scores: ArrayLike, targets: ArrayLike, weights: ArrayLike | None = None
) -> Floats:
    """Mean over the classes of the average precision, ``sum_n (R_n - R_{n-1}) P_n``.

    n runs over the distinct scores from the largest, P_n and R_n are precision and recall of the
    images that score at least so much. The mean skips classes without an image.

    Args:
        scores: ``[N, C]``, higher = the class is there.
        targets: ``[N, C]``, true where it is.
        weights: of the images, ``[B, N]``, not negative; None = one row of ones.

    Returns:
        One value for each row of weights, ``[B]``; NaN where no class has an image.
    """
    s, y = np.asarray(scores, np.float64), np.asarray(targets, bool)
    w = np.ones((1, len(s))) if weights is None else np.asarray(weights, np.float64)
    precisions = []
    for column, there in zip(s.T, y.T, strict=True):
        order = np.argsort(-column, kind="stable")
        ends = np.flatnonzero(np.append(np.diff(column[order]) != 0, True))
        passed = w[:, order].cumsum(axis=1)[:, ends]
        right = (w[:, order] * there[order]).cumsum(axis=1)[:, ends]
        gained = np.diff(right, prepend=0.0, axis=1)
        with np.errstate(invalid="ignore"):  # no weight yet, or none at all
            precision = np.nan_to_num(right / passed)
            precisions.append((gained * precision).sum(axis=1) / right[:, -1])
    defined = ~np.isnan(precisions)
    total = np.where(defined, precisions, 0.0).sum(axis=0)
    with np.errstate(invalid="ignore"):
        values: Floats = total / defined.sum(axis=0)
    return values


def map_interval(
    scores: ArrayLike, targets: ArrayLike, draws: int, seed: int
) -> tuple[float, float, float]:
    """Mean average precision and its 95% interval, of which the images are resampled.

    Args:
        scores: see :func:`mean_average_precision`.
        targets: see there.
        draws: bootstrap resamples.
        seed: of the resamples.
    """
    n = len(np.asarray(scores))

    def drawn() -> Iterator[Floats]:
        random, step = stream(seed, "mean average precision"), max(1, _BLOCK // max(1, n))
        for first in range(0, draws, step):
            counts = random.multinomial(n, np.full(n, 1 / n), size=min(step, draws - first))
            yield mean_average_precision(scores, targets, counts)

    value = float(mean_average_precision(scores, targets)[0])
    low, high = bootstrap_interval(np.concatenate([*drawn(), []]), n)
    return value, float(low), float(high)
