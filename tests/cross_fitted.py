"""A detector calibrated on the very images that it was fitted on."""

from __future__ import annotations

from ood_lab.detectors import DEFAULT_ALPHA, CalibratedDetector, Detector
from ood_lab.detectors.deployment.calibration import cross_fitted_scores, cross_fitting_of
from ood_lab.features.bank import FeatureBank


def cross_fitted(
    detector: Detector, bank: FeatureBank, alpha: float | None = DEFAULT_ALPHA
) -> CalibratedDetector:
    return CalibratedDetector.of(
        detector,
        cross_fitted_scores(detector, bank),
        alpha,
        weights_sha256=bank.record.weights_sha256,
        transform=bank.record.transform,
        calibration=cross_fitting_of(detector, bank),
        groups=bank.groups,
    )
