"""A network with a fitted detector as an ONNX file."""

from __future__ import annotations

from torch import Tensor, nn

from ood_lab.api.feature_banks import as_backbone
from ood_lab.common.files import StrPath
from ood_lab.detectors import CalibratedDetector, save_onnx


def export_onnx(
    path: StrPath,
    calibrated: CalibratedDetector,
    module: nn.Module,
    images: Tensor,
    *,
    head: str | None = None,
) -> None:
    """Writes the network and the detector as one graph, ``image -> logits, score``.

    The file's metadata hold the threshold; see
    :func:`~ood_lab.detectors.deployment.onnx_export.save_onnx`.

    Args:
        path: of the file.
        calibrated: fitted on features of ``module``.
        module: as in :func:`extract_features`.
        images: some images as the network expects them, ``[N, 3, H, W]``, of which the scores of
            the file, run by onnxruntime, are compared with those of PyTorch.
        head: name of the last linear layer; None = found.

    Raises:
        UserError: onnx or onnxruntime is missing, there is no such graph, or it gives other scores.
    """
    save_onnx(path, as_backbone(module, images, head, 1.0), calibrated, images)
