"""Moments of the features about one class, and the directions that they span."""

from __future__ import annotations

import torch
from torch import Tensor

from ood_lab.detectors.support.chunked_arithmetic import blocks
from ood_lab.detectors.support.compute_device import on_device
from ood_lab.features.bank import FeatureBank
from ood_lab.features.image_groups import group_count

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
        fourth += float(away.square().sum(dim=1).square().sum())
    mu, square = float(covariance.trace()) / d, float(covariance.square().sum())
    spread = square - d * mu**2
    rho = min(1.0, (fourth / len(counted) - square) / n / spread) if spread > 0 else 1.0
    sphere = torch.eye(d, dtype=covariance.dtype)
    return (1 - rho) * covariance + rho * mu * sphere, rho


def whitening(moment: Tensor, square: float) -> Tensor:
    """T = V diag(λ)^(-1/2) ``[D, r]`` of :func:`spanned`: T T^T is the pseudo-inverse."""
    values, vectors = spanned(moment, square)
    return vectors / values.sqrt()
