"""Arrays of numbers, as signatures name them, positions of names and rows of tables."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
#: Floats of any precision.
Reals = NDArray[np.floating]
Bools = NDArray[np.bool_]
PixelArray = NDArray[np.uint8]
#: Metric → a value of each resample or row.
MetricValues = dict[str, Floats]


def positions(names: Sequence[Any] | pd.Series, wanted: Sequence[Any] | pd.Series) -> Ints:
    """The position of each wanted name among all of them, ``[N]``; -1 where there is none."""
    return np.asarray(pd.Index(names).get_indexer(pd.Index(wanted)), np.int64)


def spaced_rows(n: int, most: int) -> Ints:
    """Of n rows so many at about equal steps, the first and the last among them; all of fewer."""
    return np.unique(np.linspace(0, n - 1, most).astype(np.int64))
