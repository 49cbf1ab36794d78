"""Moments of the features about one class, and principal subspaces (ViM, Residual, NECO)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ood_lab.common.arguments import Count
from ood_lab.common.tensor_arithmetic import squared_norms
from ood_lab.common.tensor_file import Tensors
from ood_lab.detectors.base import Detector, DetectorRefusal
from ood_lab.detectors.support.chunked_arithmetic import blocks, map_rows
from ood_lab.detectors.support.compute_device import compute_device, on_device
from ood_lab.detectors.support.requirements import require_finite
from ood_lab.features.bank import FeatureBank
from ood_lab.features.image_groups import group_count, unit_of

#: Images for each feature from which a covariance is taken as it is.
ENOUGH = 10


def second_moment(features: Tensor, center: Tensor, chosen: Tensor) -> Tensor:
    """E[(x - c)(x - c)^T] over the rows ``chosen [n]``, ``[D, D] float64`` on the CPU."""
    d = features.shape[1]
    scatter, center = on_device(torch.zeros(d, d, dtype=torch.float64)), on_device(center)
    for _, x in blocks(features, chosen):
        centered = x.double() - center
        scatter.addmm_(centered.T, centered)
    return scatter.cpu() / len(chosen)


def spanned(moment: Tensor, square: float) -> tuple[Tensor, Tensor]:
    """Eigenvalues λ ``[r]``, ascending, and vectors ``[D, r]`` of directions that are not noise.

    Those whose λ exceeds what rounding the features to float32 can make, eps32² E‖x‖², and eigh's
    error, D eps64 λ_max. The others are collinear or dead features.

    Args:
        moment: a second moment, finite.
        square: E‖x‖² of the same features.
    """
    values, vectors = torch.linalg.eigh(moment)
    kept = values > noise_level(values, square)
    return values[kept], vectors[:, kept]


def noise_level(values: Tensor, square: float) -> float:
    """The eigenvalue up to which a direction is noise, of :func:`spanned`; ``values`` ascend."""
    eps32, eps64 = (torch.finfo(dtype).eps for dtype in (torch.float32, torch.float64))
    return max(eps32**2 * square, len(values) * eps64 * values[-1].item())


def is_few(n: int, d: int) -> bool:
    """Whether n images are so few for d features that their covariance is shrunk."""
    return n < ENOUGH * d


def shrunk(
    covariance: Tensor, bank: FeatureBank, means: Tensor, groups: Tensor
) -> tuple[Tensor, float]:
    r"""The covariance shrunk towards a sphere (Ledoit and Wolf 2004, J. Multivariate Analysis 88).

    .. math::
        \Sigma^* = (1 - \rho) S + \rho \mu I, \quad \mu = \tfrac1D \mathrm{tr} S, \qquad
        \rho = \min\Big(1, \frac{\tfrac1n (E\|x - m_g\|^4 - \|S\|_F^2)}{\|S\|_F^2 - D \mu^2}\Big)

    of fewer than 10 images for each feature, where the smallest eigenvalues of S are far too small:
    the directions that few images happen not to vary in would decide the score. From there on S is
    kept, which is what the authors of the detectors use. As scikit-learn's ``ledoit_wolf``, which
    would copy all rows.

    Args:
        covariance: S, within the groups.
        bank: features ``[N, D]``; n counts groups where images belong together.
        means: m ``[G, D]``.
        groups: g of each row ``[N] int64``, below 0 = not counted.

    Returns:
        Σ* and ρ.
    """
    counted, d = (groups >= 0).nonzero().flatten(), len(covariance)
    n = group_count(bank, counted)
    if not is_few(n, d):
        return covariance, 0.0
    centers, fourth = on_device(means), 0.0
    for rows, x in blocks(bank.features, counted):
        away = x.double() - centers[on_device(groups[counted[rows]])]
        fourth += float(squared_norms(away).square().sum())
    mu, square = float(covariance.trace()) / d, float(covariance.square().sum())
    spread = square - d * mu**2
    rho = min(1.0, (fourth / len(counted) - square) / n / spread) if spread > 0 else 1.0
    sphere = torch.eye(d, dtype=covariance.dtype)
    return (1 - rho) * covariance + rho * mu * sphere, rho


def whitening(moment: Tensor, square: float) -> Tensor:
    """T = V diag(λ)^(-1/2) ``[D, r]`` of :func:`spanned`: T T^T is the pseudo-inverse."""
    values, vectors = spanned(moment, square)
    return vectors / values.sqrt()


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
    used, d = int(fitted["dim"]), bank.width
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
    d, moments = bank.width, detector.statistics(bank)
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
