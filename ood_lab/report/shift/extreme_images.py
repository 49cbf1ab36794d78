"""The images of a set with the least and the largest shift."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from ood_lab.schema.shift_axes import Axis


class NearestFarthest(NamedTuple):
    """Rows of the table of degrees: the nearest to ID first, and the farthest first."""

    nearest: pd.DataFrame
    farthest: pd.DataFrame


def nearest_farthest(
    degrees: pd.DataFrame, dataset: str, axis: Axis, count: int
) -> NearestFarthest:
    """The ``count`` images of a set nearest to ID on an axis, and as many of the farthest."""
    rows = degrees[degrees["dataset"] == dataset]
    return NearestFarthest(rows.nsmallest(count, axis), rows.nlargest(count, axis))
