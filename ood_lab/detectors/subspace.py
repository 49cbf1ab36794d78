"""Principal subspaces of the features, which ViM, Residual and NECO use."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ood_lab.detectors.base import Detector, DetectorRefusal
from ood_lab.detectors.device import on_device
from ood_lab.detectors.numeric import map_rows
from ood_lab.detectors.requirements import require_finite
from ood_lab.features.bank import FeatureBank

#: Residual, as a share of the features' distance from the origin, that is only rounding.
RELATIVE_CUTOFF = 1e-7


def principal_dimension(dim: int | Literal["auto"], d: int) -> int:
    """``auto`` is 1000 from D = 2048, else 512; a dim of D or more becomes D // 2."""
    chosen = (1000 if d >= 2048 else 512) if dim == "auto" else dim
    return chosen if chosen < d else d // 2


def fit_residual(
    detector: Detector, bank: FeatureBank, dim: int
) -> tuple[dict[str, Tensor], Tensor]:
    """``origin [D]`` = -W^+ b and ``residual [D, D - dim]``, the least explained directions.

    These are the eigenvectors of E[(x - u)(x - u)^T], u the origin, but the top ``dim``. Besides
    them the mean of :func:`residual_norm` over the bank.

    Raises:
        DetectorRefusal: the features are not finite, or leave no residual.
    """
    d = bank.features.shape[1]
    origin = -torch.linalg.pinv(bank.head_weight.double()) @ bank.head_bias.double()
    moment = require_finite(detector, detector.learning_from(bank).about(origin))
    # eigh sorts upwards: the first D - dim columns are the least explained directions.
    vectors = torch.linalg.eigh(moment).eigenvectors[:, : d - dim].contiguous()
    fitted = {"origin": origin, "residual": vectors, "dim": torch.tensor(dim)}
    norm = residual_norm(fitted, bank.features).mean()
    if norm <= RELATIVE_CUTOFF * moment.trace().sqrt():
        raise DetectorRefusal(
            f"{type(detector).__name__}: the {detector.fit_split} features leave no residual "
            f"outside {dim} of {d} dimensions: set detector.{detector.name}.dim lower"
        )
    return fitted, norm


def residual_norm(fitted: dict[str, Tensor], features: Tensor) -> Tensor:
    """Length of the part of x - u outside the principal subspace, ``[N]``."""
    origin, residual = on_device(fitted["origin"]), on_device(fitted["residual"])
    return map_rows(lambda x: ((x - origin) @ residual).norm(dim=1), features)
