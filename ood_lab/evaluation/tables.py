"""The tables of a run, and how they are shown again from disk."""

from __future__ import annotations

import logging

import pandas as pd

from ood_lab.axes import LEVELS
from ood_lab.data.dataset import ImageDataset
from ood_lab.features.bank import FeatureBank

log = logging.getLogger(__name__)


def rows_of(dataset: ImageDataset, bank: FeatureBank) -> pd.DataFrame:
    """The scores table of one set, without detectors yet: one row per image, in dataset order."""
    table = pd.DataFrame({"dataset": dataset.name, "index": bank.index.numpy()})
    table["path"] = dataset.table["path"].to_numpy()
    table["label"] = bank.labels.numpy()
    table["pred"] = bank.predictions.numpy()
    for level in LEVELS:
        has = level in dataset.table
        table[level] = dataset.table[level].astype("float64").to_numpy() if has else float("nan")
    return table
