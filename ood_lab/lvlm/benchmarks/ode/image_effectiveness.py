"""Are the made images like natural ones? Their features against those of annotated images."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

#: Name of the natural images among the sets.
NATURAL = "natural"


def effectiveness(features: Mapping[str, NDArray[np.float32]]) -> pd.DataFrame:
    """The distance of every set to the natural images.

    ``distance``: mean over the images of ``1 - max cos`` to a natural one; for natural images to
    another one. ``ratio``: that over the natural images' own; 1 = as near as they to each
    other.

    Args:
        features: normalised, ``[n, D]`` by name of the set, :data:`NATURAL` among them.

    Returns:
        ``dataset, n, distance, ratio``.
    """
    natural = features[NATURAL]
    rows = []
    for name, values in features.items():
        cosines = values @ natural.T
        if name == NATURAL:
            np.fill_diagonal(cosines, -np.inf)
        nearest = 1 - cosines.max(axis=1)
        rows.append({"dataset": name, "n": len(values), "distance": float(nearest.mean())})
    table = pd.DataFrame(rows)
    own = table.loc[table["dataset"] == NATURAL, "distance"].iloc[0]
    return table.assign(ratio=table["distance"] / own if own else np.nan)
