"""Principal subspaces of the features, which ViM, Residual and NECO use."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ood_lab.common.arguments import Count
from ood_lab.common.tensor_file import Tensors
from ood_lab.detectors.base import Detector, DetectorRefusal
from ood_lab.detectors.support.chunked_arithmetic import map_rows
from ood_lab.detectors.support.class_moments import noise_level
from ood_lab.detectors.support.compute_device import compute_device, on_device
from ood_lab.detectors.support.requirements import require_finite
from ood_lab.features.bank import FeatureBank
from ood_lab.features.image_groups import group_count, unit_of

#: Residual, as a share of the features' distance from the origin, that is only rounding.
RELATIVE_CUTOFF = 1e-7


#: Dimension of the principal subspace as it is set.
Dimension = Count | Literal["auto", "authors"]


def principal_dimension(dim: Dimension, d: int, rank: int) -> int:
    """``authors``: 1000 from D = 2048, else 512. ``auto``: the same, half of the rank at most.

    A dim of D or more becomes D // 2. Few images span few directions: a subspace of all of them
    leaves no residual of the fit images, and one of nearly all leaves what is particular to single
    images. The rank is that of the fit images, D or less.
    """
    authors = 1000 if d >= 2048 else 512
    chosen = dim if isinstance(dim, int) else authors
    chosen = chosen if chosen < d else d // 2
    return max(1, min(chosen, rank // 2)) if dim == "auto" else chosen


def fit_residual(detector: Detector, bank: FeatureBank, dim: Dimension) -> tuple[Tensors, Tensor]:
    """``origin [D]`` = -W^+ b and ``residual [D, D - dim]``, the least explained directions.

    Without a head the origin is the mean, and with ``auto`` also of fewer images than features:
    x - u of an ID image is long, and few images do not span the directions in which it is. These
    are the eigenvectors of E[(x - u)(x - u)^T], u the origin, but the top ``dim``
    (:func:`principal_dimension`). Also the mean of :func:`residual_norm` over the bank.
    Worked out once for all detectors.

    Raises:
        DetectorRefusal: the features are not finite, or leave no residual.
    """
    key = ("residual", dim, compute_device(), group_count(bank))
    fitted, norm, length, rank = bank.derived.once(key, lambda: _fit_residual(detector, bank, dim))
    used, d = int(fitted["dim"]), bank.features.shape[1]
    if norm <= RELATIVE_CUTOFF * length:
        raise DetectorRefusal(
            f"{type(detector).__name__}: the {detector.fit_split} features leave no residual "
            f"outside {used} of {d} dimensions: set detector.{detector.name}.dim=auto, or lower"
        )
    detector.used = {"dim": used}
    if used < principal_dimension("authors", d, rank):
        detector.chosen = f"dim = {used}, for {group_count(bank):,} {unit_of(bank)}s of rank {rank}"
    return dict(fitted), norm


def _fit_residual(
    detector: Detector, bank: FeatureBank, dim: Dimension
) -> tuple[Tensors, Tensor, Tensor, int]:
    """The two of :func:`fit_residual`, the root mean square of the length of x - u, the rank."""
    d, moments = bank.features.shape[1], detector.statistics(bank)
    n = group_count(bank)
    few = dim == "auto" and n < d
    if bank.head_weight.numel() and not few:
        origin = -torch.linalg.pinv(bank.head_weight.double()) @ bank.head_bias.double()
    else:
        origin = moments.mean()
    moment = require_finite(detector, moments.about(origin))
    # eigh sorts upwards: the first D - dim columns are the least explained directions.
    values, vectors = torch.linalg.eigh(moment)
    # n images about their own mean span n - 1 directions, whatever rounding makes of the last one.
    spanned = n - 1 if few else n
    rank = min(spanned, int((values > noise_level(values, moments.square)).sum()))
    dim = principal_dimension(dim, d, rank)
    residual = vectors[:, : d - dim].contiguous()
    fitted = {"origin": origin, "residual": residual, "dim": torch.tensor(dim)}
    return fitted, residual_norm(fitted, bank.features).mean(), moment.trace().sqrt(), rank


def residual_norm(fitted: Tensors, features: Tensor) -> Tensor:
    """Length of the part of x - u outside the principal subspace, ``[N]``."""
    origin, residual = on_device(fitted["origin"]), on_device(fitted["residual"])
    return map_rows(lambda x: ((x - origin) @ residual).norm(dim=1), features)
