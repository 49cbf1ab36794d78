"""What a run shows in W&B: summary values and one table."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from lightning.pytorch.loggers import Logger, WandbLogger


def summary_values(results: pd.DataFrame) -> dict[str, float]:
    """The results table as ``{detector/ood/metric: value}``; whole sets, DAD and ID accuracy.

    Levels stay in the table: 500 scalars a run would bury the dashboard.
    """
    whole = results[results.semantic_level.isna() & results.covariate_level.isna()]
    values = {}
    for row in whole.to_dict("records"):
        parts = [str(row[key]) for key in ("detector", "ood") if pd.notna(row[key])]
        values["/".join([*parts, str(row["metric"])])] = float(row["value"])
    return values


def log_results(loggers: Sequence[Logger], results: pd.DataFrame) -> None:
    """Writes the results to every W&B logger, whether the run is online or offline."""
    for logger in loggers:
        if isinstance(logger, WandbLogger):
            logger.experiment.summary.update(summary_values(results))
            logger.log_table("results", dataframe=results.reset_index(drop=True))
