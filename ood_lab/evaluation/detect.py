"""Fitting and scoring the detectors on the banks."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

import pandas as pd
import psutil

from ood_lab.data.datamodule import OODDataModule
from ood_lab.detectors import Detector, DetectorRefusal, check_memory, checked_score
from ood_lab.errors import UserError
from ood_lab.evaluation import tables
from ood_lab.features.bank import FeatureBank
from ood_lab.metrics import score_warning

log = logging.getLogger(__name__)


def memory_limit(gigabytes: float | None) -> int:
    """Bytes a detector's fit may take: as given, or 80% of what is available now."""
    if gigabytes is not None:
        return int(gigabytes * 2**30)
    return int(0.8 * psutil.virtual_memory().available)


def score_banks(
    data: OODDataModule,
    banks: Mapping[str, FeatureBank],
    detectors: Mapping[str, Detector],
    refused: dict[str, str],
    evaluated: Sequence[str],
    limit: int,
) -> tuple[pd.DataFrame, dict[str, dict[str, float]]]:
    """Fits and scores every detector; adds those that refuse to ``refused``.

    Returns:
        The scores table and ``{detector: {fit_seconds, score_seconds}}``.
    """
    parts = {name: tables.rows_of(data.splits[name], banks[name]) for name in evaluated}
    timing: dict[str, dict[str, float]] = {}
    for name, detector in detectors.items():
        try:
            start = time.perf_counter()
            fit_bank = banks[detector.fit_split] if detector.fit_split else banks["test"]
            classes, width = fit_bank.head_weight.shape
            check_memory(detector, len(fit_bank), width, classes, limit)
            if detector.fit_split:
                detector.fit(fit_bank)
            fitted = time.perf_counter()
            scored = {s: checked_score(detector, banks[s]) for s in evaluated}
        except DetectorRefusal as refusal:
            refused[name] = str(refusal)
            log.warning("%s is left out: %s", name, refusal)
            continue
        for split, values in scored.items():
            parts[split][name] = values.numpy()
        end = time.perf_counter()
        timing[name] = {"fit_seconds": fitted - start, "score_seconds": end - fitted}
    if not timing:
        reasons = "; ".join(f"{n}: {reason}" for n, reason in refused.items())
        raise UserError(f"no chosen detector works here. {reasons}")
    return pd.concat(parts.values(), ignore_index=True), timing


def suspicious(
    scores: pd.DataFrame, detectors: Sequence[str], ood_sets: Sequence[str]
) -> list[str]:
    """Warnings about scores that cannot mean what they should, one a detector and reason."""
    found: dict[tuple[str, str], list[str]] = {}
    identity = scores[scores.dataset == "test"]
    for name in detectors:
        for ood in ood_sets:
            rows = scores[scores.dataset == ood]
            if warning := score_warning(identity[name].to_numpy(), rows[name].to_numpy()):
                fact, _, reason = warning.partition(": ")
                found.setdefault((name, reason), []).append(f"{ood}: {fact}")
    return [f"{name}: {reason} ({'; '.join(on)})" for (name, reason), on in found.items()]
