"""A test of whether an accuracy is more than luck."""

from __future__ import annotations

import math


def at_chance(accuracy: float, n: int, chance: float) -> bool:
    """True where ``accuracy`` over n images is no better than an answer that ignores the image.

    ``a <= p + 2 sqrt(p (1 - p) / n)``: not more than two standard errors above ``chance`` p; and,
    of few images, less than half of the way from there to 1. p is the share of the largest class
    among these images, which is what a network reaches that always names this class: 1 / C where
    all C classes are equally frequent. False where nothing can be said: no image, a single class
    (p = 1), or an accuracy that is NaN.
    """
    if n < 1 or not 0 < chance < 1:
        return False
    error = math.sqrt(chance * (1 - chance) / n)
    return accuracy <= chance + 2 * error and accuracy < (1 + chance) / 2
