"""Detectors with p-values: fitted here on the run's own ID images, or read from files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from ood_lab.common.english import counted
from ood_lab.common.errors import UserError
from ood_lab.data.checks.check_report import shared_content
from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.data.dataset import UNKNOWN, ImageDataset
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
from ood_lab.detectors.deployment.calibration import (
    CalibratedDetectors,
)
from ood_lab.features.bank import Banks
from ood_lab.features.image_groups import group_count
from ood_lab.models import Backbone

#: Of more images, those that are split off tell enough, and ten fits more would tell little.
MOST = 10_000


def load_detectors(
    files: str | Sequence[str], alpha: float | None
) -> dict[str, CalibratedDetector]:
    """Saved detectors by name, at the given false alarm rate or, where it is None, their own.

    ``files`` are those of :func:`~ood_lab.detectors.save_detector`; of a folder, all.

    Raises:
        UserError: a wrong file, two detectors of one name, one with too few held-out images.
    """
    ready = {}
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


def decoding_with(ready: CalibratedDetectors) -> Decoding:
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


def learned_from_id(backbone: Backbone, classes: Sequence[str], ckpt: str | None) -> bool:
    """Whether the network or its head may have learned from the ID images.

    It has not where it gives features only, or has a head for other classes, as a pretrained one,
    or one that is made of texts.
    """
    own_head = backbone.num_classes == len(classes) > 0 and not backbone.text_head
    return bool(ckpt or backbone.fitted_head or own_head)


def pool(data: OODDataModule, learned: bool) -> bool:
    """Leaves no image unused where nobody gave val: those that were split off train.

    Without a network that ``learned`` from ID, detectors are fitted on all and cross-fitted, and
    train gets val and test. Else val gets test, as with more than :data:`MOST` images.

    Returns:
        Whether the detectors are to be cross-fitted.
    """
    train = data.splits["train"]
    if "val" not in data.split_off or not isinstance(train, FileDataset):
        return False
    images = sum(len(data.splits[split]) for split in ("train", *data.split_off))
    cross = not learned and images <= MOST
    parts = ["train", *data.split_off] if cross else data.split_off
    table = pd.concat([data.splits[split].table for split in parts], ignore_index=True)
    data.splits[parts[0]] = train.of(parts[0], table, train.classes, train.names)
    return cross


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
    val, train, rows, unknown = data.splits["val"], data.splits["train"], set[int](), False
    if isinstance(val, FileDataset) and data.checking.check == "off":
        return []
    others: list[ImageDataset] = [train]
    if isinstance(val, FileDataset) and trained_on and trained_on[0] != train.identity:
        paths = {path for path in trained_on[1] if os.path.isabs(path)}
        rows = {row for row, path in enumerate(val.paths) if path in paths}
        files = sorted(filter(os.path.isfile, paths))
        unknown = not files
        # Contents are only read where they are compared.
        table = pd.DataFrame({"path": files, "label": UNKNOWN})
        unread = FileDataset("the network's training images", table, [], "stat", val.cache_dir)
        others += [unread] if files else []
    overlaps = shared_content(others, val)
    rows |= {row for overlap in overlaps for row in overlap.rows}
    if not rows:
        return unknown * [
            "The network's training images are not available. Whether validation images are among "
            "them is not checked."
        ]
    n, many = len(val), len(rows)
    path = str(val.table["path"].iat[min(rows)])
    here, there = next((overlap.example for overlap in overlaps), (path, ""))
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


def n_held_out(detector: Detector, val: int) -> int:
    """How many images or groups of val p-values come from; a fit on val gets the larger half."""
    return val // 2 if detector.fit_split == "val" else val


def threshold_of(detector: Detector, banks: Banks, classes: list[str]) -> float | None:
    """The score above which ``task=predict`` calls an image OOD; None where val does not say.

    Args:
        detector: fitted.
        banks: of ID val too, where some detector was fitted on it.
        classes: of ID.
    """
    val = banks.get("val")
    # Of columns of the network, val has those of fits only.
    if val is None or detector.extraction_hook is not None or detector.fit_split == "val":
        return None
    if too_few(group_count(val), DEFAULT_ALPHA):
        return None
    return CalibratedDetector.of(
        detector,
        checked_score(detector, val),
        DEFAULT_ALPHA,
        classes=classes,
        weights_sha256=val.record.weights_sha256,
        transform=val.record.transform,
        groups=val.groups,
    ).threshold
