"""Fitting detectors: the memory is checked first, and one that refuses leaves the others alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TypeVar

from ood_lab.detectors import Detector, DetectorRefusal, check_memory
from ood_lab.detectors.device import within_device_memory
from ood_lab.errors import UserError
from ood_lab.features.bank import FeatureBank

log = logging.getLogger(__name__)

_Result = TypeVar("_Result")


def fit_within(detector: Detector, bank: FeatureBank, limit: int) -> Detector:
    """Fits the detector, or returns it as it is where nothing is, or it was for a second pass.

    Args:
        detector: not yet fitted.
        bank: of its ``fit_split``; any bank where nothing is fitted.
        limit: bytes the fit may take.

    Raises:
        DetectorRefusal: the detector cannot work on such a bank.
        UserError: the fit would take more memory, or the GPU has too little of it.
    """
    if detector.fitted and detector.second_column is not None:
        return detector  # another fit could differ in the last digit, and so from what was computed
    classes, width = bank.head_weight.shape
    check_memory(detector, len(bank), width, classes, limit)
    with within_device_memory(detector.name):
        return detector.fit(bank) if detector.fit_split else detector


def each_that_works(
    detectors: Mapping[str, Detector],
    work: Callable[[str, Detector], _Result],
    refused: dict[str, str],
) -> dict[str, _Result]:
    """``work`` of every detector; those that refuse are left out, with a warning.

    Args:
        detectors: by name.
        work: called with the name and the detector.
        refused: those that refuse are added, with the reason.

    Raises:
        UserError: none works.
    """
    results: dict[str, _Result] = {}
    for name, detector in detectors.items():
        try:
            results[name] = work(name, detector)
        except DetectorRefusal as refusal:
            refused[name] = str(refusal)
            log.warning("%s is left out: %s", name, refusal)
    if not results:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
        raise UserError(f"no chosen detector works here. {reasons}")
    return results
