"""Fitting and scoring the detectors on the banks."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import pandas as pd
import psutil

from ood_lab.detectors import Detector, checked_score
from ood_lab.evaluation.fitting import each_that_works, fit_within
from ood_lab.features.bank import FeatureBank
from ood_lab.metrics import score_warning


def memory_limit(gigabytes: float | None) -> int:
    """Bytes a detector's fit may take: as given, or 80% of what is available now."""
    if gigabytes is not None:
        return int(gigabytes * 2**30)
    return int(0.8 * psutil.virtual_memory().available)


def score_banks(
    parts: dict[str, pd.DataFrame],
    banks: Mapping[str, FeatureBank],
    detectors: Mapping[str, Detector],
    refused: dict[str, str],
    limit: int,
) -> tuple[pd.DataFrame, dict[str, dict[str, float]]]:
    """Fits and scores every detector; adds those that refuse to ``refused``.

    Args:
        parts: by evaluated set, the first of them ID test: one row an image, to which every
            detector adds its column.
        banks: of these sets, and of those that detectors are fitted on.
        detectors: by name.
        refused: reasons by name.
        limit: bytes a fit may take.

    Returns:
        The scores table and ``{detector: {fit_seconds, score_seconds}}``.
    """

    def fit_and_score(name: str, detector: Detector) -> dict[str, float]:
        start = time.perf_counter()
        fit_within(detector, banks[detector.fit_split or "test"], limit)
        fitted = time.perf_counter()
        scored = {split: checked_score(detector, banks[split]) for split in parts}
        for split, values in scored.items():
            parts[split][name] = values.numpy()
        return {
            "fit_seconds": fitted - start,
            "score_seconds": time.perf_counter() - fitted,
        }

    timing = each_that_works(detectors, fit_and_score, refused)
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
