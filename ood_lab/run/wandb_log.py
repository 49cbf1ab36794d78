"""What a run shows in W&B: summary values and one table."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from lightning.pytorch.loggers import Logger, WandbLogger

HEADLINES = ("auroc", "fpr95", "fpr95_id", "fpr95_ood", "aupr_in", "aupr_out")


def summary_values(results: pd.DataFrame) -> dict[str, float]:
    """The results table as ``{detector/ood/metric: value}``; whole sets, DAD and ID accuracy.

    Levels stay in the table: 500 scalars a run would bury the dashboard.
    """
    whole = results[results.semantic_level.isna() & results.covariate_level.isna()]
    sets = whole[whole.metric.isin(HEADLINES) & whole.ood.notna()]
    values = {f"{r.detector}/{r.ood}/{r.metric}": float(r.value) for r in sets.itertuples()}
    overall = whole[whole.ood.isna()]
    for row in overall.itertuples():
        key = row.metric if pd.isna(row.detector) else f"{row.detector}/{row.metric}"
        values[str(key)] = float(row.value)
    return values


def log_results(loggers: Sequence[Logger], results: pd.DataFrame) -> None:
    """Writes the results to every W&B logger, whether the run is online or offline."""
    for logger in loggers:
        if isinstance(logger, WandbLogger):
            logger.experiment.summary.update(summary_values(results))
            logger.log_table("results", dataframe=results.reset_index(drop=True))
