"""ONNX files of the detectors of a prediction."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from ood_lab.common.english import counted
from ood_lab.common.errors import UserError
from ood_lab.data.sources.image_files import FileDataset
from ood_lab.data.sources.image_lists import Listing
from ood_lab.data.transforms.subsets import even_rows
from ood_lab.detectors import cannot_export, save_onnx
from ood_lab.detectors.base import Detectors, Reasons
from ood_lab.detectors.deployment.calibration import CalibratedDetectors
from ood_lab.models import Backbone

log = logging.getLogger(__name__)
#: Images of which an exported graph is compared with PyTorch.
COMPARED = 32


def check_onnx(detectors: Detectors, backbone: Backbone) -> None:
    """Raises :class:`UserError` where none of the detectors can be exported."""
    reasons = [cannot_export(detector, backbone) for detector in detectors.values()]
    obstacles = [reason for reason in reasons if reason]
    if len(obstacles) == len(reasons):
        raise UserError(f"task.onnx=true: {obstacles[0]}; remove it, or choose detector=[knn,msp]")


def export_onnx_files(
    ready: CalibratedDetectors, backbone: Backbone, images: FileDataset | Listing, folder: Path
) -> tuple[Reasons, dict[str, float]]:
    """Writes what can be an ONNX file.

    Returns:
        Why the others cannot, and the largest deviation of a p-value of those with preprocessing.
    """
    refused, deviations, pictures = Reasons(), dict[str, float](), []
    transform, images.transform = images.transform, _unchanged
    assert transform is not None
    try:
        for row in even_rows(len(images), COMPARED):
            with suppress(UserError):  # an image that cannot be read has its error in the table
                pictures.append(images[int(row)]["image"])
    finally:
        images.transform = transform
    if not pictures:
        raise UserError("task.onnx=true: no image can be read that graphs are compared on")
    batch = torch.stack([transform(picture) for picture in pictures])
    for name, calibrated in ready.items():
        try:
            deviation = save_onnx(folder / f"{name}.onnx", backbone, calibrated, batch, pictures)
            deviations |= {} if deviation is None else {name: deviation}
        except UserError as error:
            refused[name] = str(error)
            log.warning("%s", error)
    written = [name for name in ready if name not in refused]
    log.info("%s in %s", counted(len(written), "ONNX file"), folder)
    return refused, deviations


def _unchanged(picture: Image.Image) -> Any:
    return picture
