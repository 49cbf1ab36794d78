"""The images of a set with the least and the largest shift."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from ood_lab.axes import Axis


class Extremes(NamedTuple):
    """Rows of the table of degrees: the nearest to ID first, and the farthest first."""

    nearest: pd.DataFrame
    farthest: pd.DataFrame


def extremes(degrees: pd.DataFrame, dataset: str, axis: Axis, count: int) -> Extremes:
    """The ``count`` images of a set nearest to ID on an axis, and as many of the farthest."""
    rows = degrees[degrees["dataset"] == dataset]
    return Extremes(rows.nsmallest(count, axis), rows.nlargest(count, axis))
