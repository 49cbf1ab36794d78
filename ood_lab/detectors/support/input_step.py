"""A step of ε on the input, in units of the un-normalised image."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ood_lab.detectors.base import DetectorRefusal
from ood_lab.models.backbone import Backbone


def require_std(name: str, backbone: Backbone, std: Sequence[float] | None) -> Sequence[float]:
    """The σ by which images were divided: ``std``, or where it is None the backbone's own.

    Raises:
        DetectorRefusal: neither is known; names the detector ``name``.
    """
    if std is None and "std" not in backbone.data_config:
        raise DetectorRefusal(
            f"{name}: the backbone does not say how its images are normalised; give "
            f"detector.{name}.std=[r,g,b]"
        )
    return std or backbone.data_config["std"]


def input_step(epsilon: float, std: Sequence[float], image: Tensor) -> Tensor:
    """ε/σ of every channel of normalised images, ``[3, 1, 1]`` on the device of ``image``."""
    sigma = torch.tensor(std, dtype=image.dtype).to(image.device, non_blocking=True)
    return (epsilon / sigma).view(-1, 1, 1)


def sign(gradient: Tensor) -> Tensor:
    """1 where the gradient is 0 or above, else -1, as the authors of ODIN have it."""
    return torch.where(gradient >= 0, 1.0, -1.0).to(gradient.dtype)
