"""Is an accuracy more than luck?"""

from __future__ import annotations

import math


def at_chance(accuracy: float, n: int, classes: int) -> bool:
    """Whether ``accuracy`` over n images is no better than guessing among C classes.

    ``a <= p + 2 sqrt(p (1 - p) / n)`` with ``p = 1 / C``: not more than two standard errors above
    it; and, of few images, less than half of the way from there to 1. False where nothing can be
    said: no image, one class, or an accuracy that is NaN.
    """
    if n < 1 or classes < 2:
        return False
    chance = 1 / classes
    error = math.sqrt(chance * (1 - chance) / n)
    return accuracy <= chance + 2 * error and accuracy < (1 + chance) / 2
