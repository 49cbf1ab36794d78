"""Detectors with p-values: fitted here on the run's own ID images, or read from files."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from ood_lab.common.english import counted
from ood_lab.common.errors import UserError
from ood_lab.data.checks.content_overlap import shared_content
from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.data.dataset import UNKNOWN
from ood_lab.data.sources.image_files import FileDataset
from ood_lab.data.sources.pixel_decoding import Decoding
from ood_lab.detectors import (
    DEFAULT_ALPHA,
    CalibratedDetector,
    Detector,
    checked_score,
    load_detector,
    too_few,
)
from ood_lab.evaluation.detector_fitting import cut_at, each_that_works, fit_within
from ood_lab.features.bank import FeatureBank

log = logging.getLogger(__name__)


def load_detectors(
    files: str | Sequence[str], alpha: float | None
) -> dict[str, CalibratedDetector]:
    """Saved detectors by name, at the given false alarm rate or, where it is None, their own.

    ``files`` are those of :func:`~ood_lab.detectors.save_detector`; of a folder, all.

    Raises:
        UserError: a wrong file, two detectors of one name, one with too few held-out images.
    """
    ready: dict[str, CalibratedDetector] = {}
    for place in map(Path, [files] if isinstance(files, str) else files):
        for file in sorted(place.glob("*.safetensors")) if place.is_dir() else [place]:
            saved = load_detector(file)
            name = saved.detector.name
            if name in ready:
                raise UserError(f"task.detector_file: two files hold a detector '{name}'")
            ready[name] = saved if alpha is None else saved.at(alpha)
    if not ready:
        raise UserError(f"task.detector_file={files} holds no .safetensors file")
    return ready


def decoding_with(ready: Mapping[str, CalibratedDetector]) -> Decoding:
    """How images are decoded for saved detectors: in the range of the training images.

    Raises:
        UserError: the detectors have different ranges.
    """
    ranges = {saved.pixel_range: name for name, saved in ready.items()}
    if len(ranges) > 1:
        first, second = list(ranges.values())[:2]
        raise UserError(
            f"task.detector_file: {first} and {second} were fitted on images with different "
            "ranges of pixel values (data.pixel_range): score them one after the other"
        )
    return Decoding(pixel_range=next(iter(ranges)))


def without_training_images(
    data: OODDataModule, trained_on: tuple[str, list[str]] | None
) -> list[str]:
    """Takes training images out of val, by content, and says so.

    A network scores the images that it was trained on as more ID than others, so that p-values
    would be too small. Files are not compared where ``data.check=off``.

    Args:
        data: set up; its val split loses the images.
        trained_on: identity and addresses of the images that the network was trained on, which may
            be others than the train split; None = not known.

    Returns:
        What the user should know, in sentences.

    Raises:
        UserError: all images of val are training images.
    """
    val, train, unknown = data.splits["val"], data.splits["train"], []
    if isinstance(val, FileDataset) and data.checking.check == "off":
        return []
    found = shared_content([train], val)
    examples, rows = [o.example for o in found], {row for o in found for row in o.rows}
    if isinstance(val, FileDataset) and trained_on and trained_on[0] != train.identity:
        paths = [path for path in trained_on[1] if os.path.isabs(path)]
        same = set(paths)
        rows |= {row for row, path in enumerate(val.paths) if path in same}
        files = [path for path in paths if os.path.isfile(path)]
        found = shared_content([_listed(files, val)], val) if files else []
        examples += [o.example for o in found]
        rows |= {row for o in found for row in o.rows}
        if not (files or rows):
            unknown.append(
                "The network's training images are not available. Whether validation images are "
                "among them is not checked."
            )
    if not rows:
        return unknown
    n, many = len(val), len(rows)
    here, there = examples[0] if examples else (str(val.table["path"].iat[min(rows)]), "")
    example = f"such as {here}" + (f" = {there}" if there not in ("", here) else "")
    if many == n:
        raise UserError(
            f"all {n:,} validation images are also training images ({example}), so they cannot "
            "calibrate a threshold: give others with data.id.val=DIR"
        )
    data.leave_out("val", sorted(rows))
    return [
        f"{many:,} of {counted(n, 'validation image')} are also training images ({example}). They "
        "are excluded from the calibration, because they make p-values and FPR too small."
    ]


def _listed(paths: Sequence[str], like: FileDataset) -> FileDataset:
    """Files as a dataset whose contents are only read where they are compared."""
    table = pd.DataFrame({"path": list(paths), "label": UNKNOWN})
    return FileDataset("the network's training images", table, [], "stat", like.cache_dir)


def fit_and_held_out(
    detector: Detector, banks: Mapping[str, FeatureBank], seed: int
) -> tuple[FeatureBank, FeatureBank]:
    """What the detector is fitted on, and the ID images that its p-values come from."""
    val = banks["val"]
    if detector.fit_split == "val":
        return cut_at(val, len(val) - n_held_out(detector, len(val)), seed)
    return banks[detector.fit_split or "val"], val


def with_enough_held_out(
    detectors: Mapping[str, Detector], val: int, alpha: float | None, refused: dict[str, str]
) -> dict[str, Detector]:
    """The detectors whose p-values can reach alpha with a val split of so many images.

    Without an alpha, one held-out image is enough.

    The others are skipped with a warning, and go to ``refused`` with the reason.

    Raises:
        UserError: that is all of them.
    """
    reasons = {name: too_few(n_held_out(d, val), alpha) for name, d in detectors.items()}
    few = {name: reason for name, reason in reasons.items() if reason}
    if len(few) == len(detectors):
        raise UserError(str(too_few(max(n_held_out(d, val) for d in detectors.values()), alpha)))
    if few:
        names, reason = ", ".join(few), next(iter(few.values()))
        log.warning("left out, as half of val goes into their fit: %s; %s", names, reason)
    refused |= few
    return {name: detector for name, detector in detectors.items() if name not in few}


def n_held_out(detector: Detector, val: int) -> int:
    """How many images of val the p-values come from; a fit on val gets the larger half."""
    return val // 2 if detector.fit_split == "val" else val


def fit_detectors(
    detectors: Mapping[str, Detector],
    banks: Mapping[str, FeatureBank],
    refused: dict[str, str],
    alpha: float | None,
    classes: list[str],
    seed: int,
    limit: int,
    threshold_of: Callable[[str, Detector], float] | None = None,
) -> dict[str, CalibratedDetector]:
    """Fits every detector and takes its p-values from ID images that it was not fitted on.

    Those are the val split. A detector that is itself fitted on val gets a seeded random half of
    it, and its p-values come from the other half. ``banks`` has ``val``, and ``train`` where a
    detector is fitted on it; detectors that cannot work here are added to ``refused``, with the
    reason. A fit may take ``limit`` bytes. ``threshold_of`` gives the threshold of a fitted
    detector by name, where no ``alpha`` makes it.

    Raises:
        UserError: no detector works.
    """

    def calibrated(name: str, detector: Detector) -> CalibratedDetector:
        fit_bank, held_out = fit_and_held_out(detector, banks, seed)
        fit_within(detector, fit_bank, limit)
        return CalibratedDetector.of(
            detector,
            checked_score(detector, held_out),
            alpha,
            classes=classes,
            weights_sha256=held_out.manifest["weights_sha256"],
            transform=held_out.manifest["transform"],
            given_threshold=None if threshold_of is None else threshold_of(name, detector),
        )

    return each_that_works(detectors, calibrated, refused)


def threshold_of(
    detector: Detector, banks: Mapping[str, FeatureBank], classes: list[str]
) -> float | None:
    """The score above which ``task=predict`` calls an image OOD; None where val does not say.

    Args:
        detector: fitted.
        banks: of ID val too, where some detector was fitted on it.
        classes: of ID.
    """
    val = banks.get("val")
    columns = detector.extraction_hook, detector.second_pass_hook  # val has those of fits alone
    if val is None or columns != (None, None) or detector.fit_split == "val":
        return None
    if too_few(len(val), DEFAULT_ALPHA):
        return None
    made = {key: val.manifest[key] for key in ("weights_sha256", "transform")}
    scores = checked_score(detector, val)
    return CalibratedDetector.of(detector, scores, DEFAULT_ALPHA, classes=classes, **made).threshold
