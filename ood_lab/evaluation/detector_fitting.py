"""Fitting and scoring detectors on the banks.

The memory is checked first, and a detector that fails does not stop the others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import pandas as pd
import psutil
import torch

from ood_lab.common.errors import UserError
from ood_lab.common.tensor_arithmetic import permutation
from ood_lab.data.dataset import ImageDataset
from ood_lab.detectors import (
    Detector,
    DetectorRefusal,
    check_memory,
    checked_score,
    fit_detector,
)
from ood_lab.detectors.base import Detectors, Reasons
from ood_lab.features.bank import Banks, FeatureBank
from ood_lab.features.image_groups import group_codes, group_count
from ood_lab.schema.image_columns import DEGREES, LEVELS, MADE_OF

log = logging.getLogger(__name__)

_Result = TypeVar("_Result")


def cut_at(bank: FeatureBank, first: int, seed: int) -> tuple[FeatureBank, FeatureBank]:
    """A random part of ``first`` groups of images, and the rest to judge what is fitted on it.

    Both are in the order of the bank.
    """
    order = permutation(group_count(bank), seed)
    chosen = torch.isin(group_codes(bank), order[:first])
    return bank.rows(chosen), bank.rows(~chosen)


def fit_within_memory(detector: Detector, bank: FeatureBank) -> Detector:
    """Fits the detector, or returns it unchanged where it needs no fit.

    ``bank`` is that of its ``fit_split``, or any where nothing is fitted.

    Raises:
        DetectorRefusal: the detector cannot work on such a bank.
        UserError: the fit would take more than 80% of the free memory, or the GPU has too little.
    """
    classes, width = bank.num_classes, bank.width
    limit = int(0.8 * psutil.virtual_memory().available)
    check_memory(detector, len(bank.of_tiles), width, classes, limit)
    if not detector.fit_split:
        return detector
    fit_detector(detector, bank)
    if detector.chosen:
        log.info("%s: %s", detector.name, detector.chosen)
    return detector


def each_that_works(
    detectors: Detectors,
    work: Callable[[str, Detector], _Result],
    refused: Reasons,
) -> dict[str, _Result]:
    """``work`` of every detector, given its name and it.

    Those that cannot be fitted are skipped with a warning, and go to ``refused`` with the reason.

    Raises:
        UserError: none works.
    """
    results = {}
    for name, detector in detectors.items():
        try:
            results[name] = work(name, detector)
        except DetectorRefusal as refusal:
            refused[name] = str(refusal)
            log.warning("%s is skipped: %s", name, refusal)
    if not results:
        raise none_works(refused)
    return results


def none_works(refused: Reasons) -> UserError:
    """The error where no chosen detector can be scored, with the reason for each."""
    reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
    return UserError(f"no chosen detector works here. {reasons}")


def bank_rows(name: str, bank: FeatureBank) -> pd.DataFrame:
    """What the bank of a set says of its images, one row each: ``dataset, index, label, pred``."""
    columns = {"index": bank.index, "label": bank.labels, "pred": bank.predictions}
    return pd.DataFrame({"dataset": name, **{key: v.numpy() for key, v in columns.items()}})


def rows_of(dataset: ImageDataset, bank: FeatureBank) -> pd.DataFrame:
    """The scores table of one set, without detectors yet: one row per image, in dataset order."""
    table = bank_rows(dataset.name, bank)
    table.insert(2, "path", dataset.table["path"].to_numpy())
    for column in dataset.table.columns.intersection([MADE_OF, *DEGREES]):
        table[column] = dataset.table[column].to_numpy()
    for level in LEVELS:
        has = level in dataset.table
        table[level] = dataset.table[level].astype("float64").to_numpy() if has else float("nan")
    return table


def fit_and_score(
    parts: Mapping[str, pd.DataFrame], banks: Banks, name: str, detector: Detector
) -> dict[str, float]:
    """Fits a detector, and adds the column of its scores to the rows of the evaluated sets.

    Args:
        parts: the evaluated sets, one row per image.
        banks: of these sets, and of those that detectors are fitted on.
        name: of the column.
        detector: not fitted.

    Returns:
        ``fit_seconds`` and ``score_seconds``.
    """
    start = time.perf_counter()
    fit_within_memory(detector, banks[detector.fit_split or "test"])
    fitted = time.perf_counter()
    scored = {split: checked_score(detector, banks[split]) for split in parts}
    for split, values in scored.items():
        parts[split][name] = values.numpy()
    return {"fit_seconds": fitted - start, "score_seconds": time.perf_counter() - fitted}


def fit_and_held_out(
    detector: Detector, banks: Banks, first: int, seed: int
) -> tuple[FeatureBank, FeatureBank]:
    """What a detector is fitted on, and the ID images of ``val`` to judge it on.

    Where it is fitted on ``val`` itself, it gets ``first`` groups of it, and the others judge.
    """
    val = banks["val"]
    if detector.fit_split == "val":
        return cut_at(val, first, seed)
    return banks[detector.fit_split or "val"], val
