"""Agreement of measured shift degrees with the known levels of the images, by rank."""

from __future__ import annotations

import pandas as pd

from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.schema.image_columns import AXES, LEVELS


def agreement(degrees: pd.DataFrame, data: OODDataModule) -> pd.DataFrame:
    """Spearman's rank correlation of degrees with the levels that sets bring along.

    Args:
        degrees: of :meth:`ood_lab.tasks.shift_scores.ShiftScores.measured`, before any measured
            level replaces a known one.
        data: its OOD sets may have ``semantic_level`` and ``covariate_level``.

    Returns:
        One row per set with both levels, decomposition, degree and level: ``dataset, decomposition,
        degree, level, n, spearman`` (over images), ``spearman_cells`` (over means of the cells of
        the known grid). Degree and level of the same axis should agree, of different axes not.
    """
    rows = []
    for name in data.ood_names:
        table = data.splits[name].table
        if not set(LEVELS) <= set(table):
            continue
        levels = table[list(LEVELS)].reset_index(drop=True)
        of_set = degrees[degrees["dataset"] == name].reset_index(drop=True)
        degrees_of = [c for c in map(str, of_set) if c.startswith("semantic") and "level" not in c]
        for suffix in dict.fromkeys(c.removeprefix("semantic") for c in degrees_of):
            for degree in AXES:
                both = levels.assign(degree=of_set[degree + suffix])
                cells = both.groupby(list(LEVELS), as_index=False)["degree"].mean()
                for level, column in zip(AXES, LEVELS, strict=True):
                    rows.append(
                        {
                            "dataset": name,
                            "decomposition": suffix.removeprefix("_") or "laid",
                            "degree": f"D_{degree}",
                            "level": level,
                            "n": len(both),
                            "spearman": both["degree"].corr(both[column], "spearman"),
                            "spearman_cells": cells["degree"].corr(cells[column], "spearman"),
                        }
                    )
    return pd.DataFrame(rows)
