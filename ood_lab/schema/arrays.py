"""Arrays of numbers, as signatures name them, and rows of tables."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Pixels = NDArray[np.uint8]


def spaced_rows(n: int, most: int) -> Ints:
    """Of n rows so many at about equal steps, the first and the last among them; all of fewer."""
    return np.unique(np.linspace(0, n - 1, most).astype(np.int64))
