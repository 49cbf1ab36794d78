"""The tables of a run, and how they are shown again from disk."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from ood_lab.axes import LEVELS
from ood_lab.data.dataset import ImageDataset
from ood_lab.features.bank import FeatureBank
from ood_lab.io import read_json, read_table
from ood_lab.report import console_tables

log = logging.getLogger(__name__)


def rows_of(dataset: ImageDataset, bank: FeatureBank) -> pd.DataFrame:
    """The scores table of one set, without detectors yet: one row an image, in dataset order."""
    table = pd.DataFrame({"dataset": dataset.name, "index": bank.index.numpy()})
    table["path"] = dataset.table["path"].to_numpy()
    table["label"] = bank.labels.numpy()
    table["pred"] = bank.predictions.numpy()
    for level in LEVELS:
        has = level in dataset.table
        table[level] = dataset.table[level].astype("float64").to_numpy() if has else float("nan")
    return table


def show(results: pd.DataFrame, manifest: Mapping[str, Any], best: pd.DataFrame | None) -> None:
    """Prints the tables of a run."""
    table = console_tables(
        results,
        protocol=manifest["protocol"],
        significance=best,
        refused=manifest["refused"],
        title=manifest["title"],
    )
    Console().print(table)
    show_warnings(manifest)


def show_warnings(manifest: Mapping[str, Any]) -> None:
    """Says what to know before a number of the run is believed."""
    for warning in manifest["warnings"]:
        log.warning(warning)


def show_run(folder: Path) -> None:
    """Prints the tables of a finished run."""
    results, best = folder / "results.parquet", folder / "best.parquet"
    if results.exists():
        manifest = read_json(folder / "manifest.json")
        show(read_table(results), manifest, read_table(best) if best.exists() else None)
