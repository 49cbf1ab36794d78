"""The IS-OOD evaluation: detectors over levels of shift that a CLIP has measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ood_lab.arguments import Count, Levels
from ood_lab.clip import ClipModel
from ood_lab.data.datamodule import OODDataModule
from ood_lab.data.division import apply_levels
from ood_lab.detectors import Detector
from ood_lab.evaluation.banks import require_ood
from ood_lab.evaluation.tuning import Tuning
from ood_lab.models import Backbone
from ood_lab.tasks.divide import divide
from ood_lab.tasks.score import check_choices, score
from ood_lab.tasks.workplace import Workplace


def check_pool(
    *,
    data: OODDataModule,
    detectors: Mapping[str, Detector],
    metrics: Mapping[str, Any],
    shift: Mapping[str, Any],
    tuning: Tuning,
) -> None:
    """Raises :class:`UserError` without OOD sets, and what :func:`check_choices` does."""
    require_ood(data)
    check_choices(data=data, detectors=detectors, metrics=metrics, shift=shift, tuning=tuning)


def is_ood(
    *,
    place: Workplace,
    detectors: dict[str, Detector],
    backbone: Backbone,
    clip: ClipModel,
    model: Mapping[str, Any],
    shift: Mapping[str, Any],
    tuning: Tuning,
    laid: str | None = None,
    k: Count | None = None,
    levels: Levels = 8,
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
    pool = divide(
        place=place,
        clip=clip,
        laid=laid,
        k=k,
        levels=levels,
        edges=edges,
        sets=sets,
        report=report,
    )
    if pool is not None:
        splits = place.data.splits
        apply_levels({name: splits[name] for name in place.data.ood_names}, pool, "this division")
    return score(
        place=place,
        detectors=detectors,
        backbone=backbone,
        model=model,
        shift=shift,
        tuning=tuning,
        memory_limit_gb=memory_limit_gb,
        report=report,
    )
