"""A network with a fitted detector as an ONNX file."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from PIL import Image
from torch import Tensor, nn

from ood_lab.api.feature_banks import as_backbone
from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath
from ood_lab.common.tensor_file import Transform
from ood_lab.detectors import CalibratedDetector, save_onnx
from ood_lab.models import Backbone


def export_onnx(
    path: StrPath,
    calibrated: CalibratedDetector,
    module: nn.Module,
    images: Tensor | Sequence[Image.Image],
    *,
    head: str | None = None,
    preprocessing: bool = True,
    transform: Transform | None = None,
) -> float | None:
    """Writes network and detector as one graph, from a picture to its p-value and the decision.

    The graph takes ``image [B, H, W, 3] uint8``; where it has no preprocessing, images as the
    network expects them. See :func:`~ood_lab.detectors.deployment.onnx_export.save_onnx`.

    Args:
        path: of the file.
        calibrated: fitted on features of ``module``.
        module: as in :func:`extract_features`.
        images: some, of which the file, run by onnxruntime, is compared with PyTorch: pictures, or
            a tensor ``[N, 3, H, W]`` as the network expects it, which leaves preprocessing to you.
        head: name of the last linear layer; None = found.
        preprocessing: the graph begins with the transform.
        transform: of the pictures; None = that of a network of this package.

    Returns:
        The largest deviation of a p-value from PyTorch's; None without preprocessing.

    Raises:
        UserError: onnx or onnxruntime is missing, there is no such graph, it gives other scores, or
            pictures have no transform.
    """
    if isinstance(images, Tensor):
        save_onnx(path, as_backbone(module, images, head, 1.0), calibrated, images)
        return None
    make = transform or (module.transform if isinstance(module, Backbone) else None)
    if make is None:
        raise UserError("export_onnx: give transform=, which makes of a picture what is extracted")
    batch = torch.stack([make(picture.convert("RGB")) for picture in images])
    pictures = images if preprocessing else ()
    return save_onnx(path, as_backbone(module, batch, head, 1.0), calibrated, batch, pictures, make)
