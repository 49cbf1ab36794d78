"""The IS-OOD evaluation: detectors over levels of shift that a CLIP has measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import pandas as pd

from ood_lab.clip import ClipModel
from ood_lab.data.datamodule import OODDataModule
from ood_lab.detectors import Detector
from ood_lab.models import Backbone
from ood_lab.tasks.divide import LEVELS, divide
from ood_lab.tasks.score import score
from ood_lab.tasks.tuning import Tuning


def is_ood(
    *,
    detectors: dict[str, Detector],
    data: OODDataModule,
    backbone: Backbone,
    clip: ClipModel,
    extractor: L.Trainer,
    folder: Path,
    features_root: Path,
    model: Mapping[str, Any],
    metrics: Mapping[str, Any],
    shift: Mapping[str, Any],
    tuning: Tuning,
    seed: int,
    manifest: dict[str, Any],
    is_main: bool,
    laid: str | None = None,
    k: int | None = None,
    levels: int = 8,
    edges: str | None = None,
    sets: Sequence[str] | None = None,
    memory_limit_gb: float | None = None,
    report: bool = True,
) -> pd.DataFrame | None:
    """Divides the OOD images into measured levels, then scores every detector on every cell.

    The arguments are those of :func:`~ood_lab.tasks.divide.divide` and
    :func:`~ood_lab.tasks.score.score`; ``backbone`` is scored, ``clip`` only measures. The cells
    are filters on rows of the same banks, so 64 cells cost no more passes than one.

    Returns:
        The results table of the measured levels; None on the other ranks.
    """
    options: dict[str, Any] = {
        "extractor": extractor,
        "folder": folder,
        "features_root": features_root,
        "metrics": metrics,
        "seed": seed,
        "manifest": manifest,
        "is_main": is_main,
        "report": report,
    }
    pool = divide(
        data=data, clip=clip, laid=laid, k=k, levels=levels, edges=edges, sets=sets, **options
    )
    if pool is not None:
        _replace_levels(data, pool)
    return score(
        detectors=detectors,
        data=data,
        backbone=backbone,
        model=model,
        shift=shift,
        tuning=tuning,
        memory_limit_gb=memory_limit_gb,
        **options,
    )


def _replace_levels(data: OODDataModule, pool: pd.DataFrame) -> None:
    for name in data.ood_names:
        rows = pool[pool["dataset"] == name].sort_values("index")
        levels = {level: rows[level].to_numpy(np.int64) for level in LEVELS} if len(rows) else None
        data.splits[name].set_levels(levels)
