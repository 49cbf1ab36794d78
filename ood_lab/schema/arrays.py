"""Arrays of numbers, as signatures name them, and positions of names."""

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


def positions(names: Sequence[Any] | pd.Series, wanted: Sequence[Any] | pd.Series) -> Ints:
    """The position of each wanted name among all of them, ``[N]``; -1 where there is none."""
    return np.asarray(pd.Index(names).get_indexer(pd.Index(wanted)), np.int64)
