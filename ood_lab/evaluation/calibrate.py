"""Detectors with a threshold: fitted here on the run's own ID images, or read from files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ood_lab.detectors import CalibratedDetector, Detector, Rule, checked_score, load_detector
from ood_lab.detectors.calibration import DEFAULT_LEVELS
from ood_lab.errors import UserError
from ood_lab.evaluation.fitting import cut_at, each_that_works, fit_within
from ood_lab.features.bank import FeatureBank


def chosen_rule(rule: str | None, tpr: float | None, alpha: float | None) -> Rule | None:
    """The rule that the options of the task describe; None where all are None.

    Raises:
        UserError: options of two rules, or an impossible value.
    """
    levels = {"tpr": tpr, "conformal": alpha}
    named = [n for n in (*levels, rule) if n and (n == rule or levels[n] is not None)]
    if len(set(named)) > 1:
        raise UserError(
            "task.tpr belongs to task.rule=tpr, task.alpha to task.rule=conformal: set one of them"
        )
    if not named:
        return None
    level = levels.get(named[0])
    return Rule(named[0], DEFAULT_LEVELS.get(named[0], 0.0) if level is None else level)


def load_detectors(files: str | Sequence[str], rule: Rule | None) -> dict[str, CalibratedDetector]:
    """Saved detectors by name, under the given rule or, where it is None, their own.

    ``files`` are those of :func:`~ood_lab.detectors.save_detector`; of a folder, all.

    Raises:
        UserError: a wrong file, two detectors of one name.
    """
    ready: dict[str, CalibratedDetector] = {}
    for place in map(Path, [files] if isinstance(files, str) else files):
        for file in sorted(place.glob("*.safetensors")) if place.is_dir() else [place]:
            saved = load_detector(file)
            name = saved.detector.name
            if name in ready:
                raise UserError(f"task.detector_file: two files hold a detector '{name}'")
            ready[name] = saved if rule is None else saved.under(rule)
    if not ready:
        raise UserError(f"task.detector_file={files} holds no .safetensors file")
    return ready


def fit_and_held_out(
    detector: Detector, banks: Mapping[str, FeatureBank], seed: int
) -> tuple[FeatureBank, FeatureBank]:
    """What the detector is fitted on, and the ID images that its threshold comes from."""
    val = banks["val"]
    if detector.fit_split == "val":
        return cut_at(val, (len(val) + 1) // 2, seed)  # the larger half to fit on
    return banks[detector.fit_split or "val"], val


def fit_detectors(
    detectors: Mapping[str, Detector],
    banks: Mapping[str, FeatureBank],
    refused: dict[str, str],
    rule: Rule,
    classes: list[str],
    seed: int,
    limit: int,
) -> dict[str, CalibratedDetector]:
    """Fits every detector and takes its threshold from ID images that it was not fitted on.

    Those are the val split. A detector that is itself fitted on val gets a seeded random half of
    it, and its threshold comes from the other half. ``banks`` has ``val``, and ``train`` where a
    detector is fitted on it; detectors that cannot work here are added to ``refused``, with the
    reason. A fit may take ``limit`` bytes.

    Raises:
        UserError: too few held-out images; no detector works.
    """

    def calibrated(name: str, detector: Detector) -> CalibratedDetector:
        fit_bank, held_out = fit_and_held_out(detector, banks, seed)
        fit_within(detector, fit_bank, limit)
        return CalibratedDetector.of(
            detector,
            checked_score(detector, held_out),
            rule,
            classes=classes,
            weights_sha256=held_out.manifest["weights_sha256"],
            transform=held_out.manifest["transform"],
        )

    return each_that_works(detectors, calibrated, refused)
