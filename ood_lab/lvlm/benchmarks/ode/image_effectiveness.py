"""Are the made images like natural ones? Their features against those of annotated images."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ood_lab.metrics.resampling.clustered_bootstrap import clustered, shares

#: Name of the natural images among the sets.
NATURAL = "natural"


def effectiveness(
    features: Mapping[str, NDArray[np.float32]],
    by: Mapping[str, ArrayLike] | None = None,
    **resampling: Any,
) -> pd.DataFrame:
    """The distance of every set to the natural images.

    ``distance``: mean over the images of ``1 - max cos`` to a natural one; for natural images to
    another one, with a bootstrap interval over the images of the set. ``ratio``: distance over the
    natural images' own; 1 = as near as they to each other.

    Args:
        features: normalised, ``[n, D]`` by name of the set, :data:`NATURAL` among them.
        by: by name of the set, ``[n]``: images that are resampled together; missing = each.
        resampling: ``draws`` and ``seed``, see
            :func:`~ood_lab.metrics.resampling.clustered_bootstrap.clustered`.

    Returns:
        ``dataset, n, distance, ci_low, ci_high, ratio``.
    """
    natural = features[NATURAL]
    rows = []
    for name, values in features.items():
        cosines = values @ natural.T
        if name == NATURAL:
            np.fill_diagonal(cosines, -np.inf)
        nearest = 1 - cosines.max(axis=1)
        counts, units = np.column_stack([nearest, np.ones(len(nearest))]), (by or {}).get(name)
        found = clustered(counts, partial(shares, [""]), units, **resampling).estimates()[""]
        own = {"dataset": name, "n": len(values), "distance": float(nearest.mean())}
        rows.append({**own, "ci_low": found.low, "ci_high": found.high})
    table = pd.DataFrame(rows)
    own = table.loc[table["dataset"] == NATURAL, "distance"].iloc[0]
    return table.assign(ratio=table["distance"] / own if own else np.nan)
