"""Moments of the features about one class, and the directions that they span."""

from __future__ import annotations

import torch
from torch import Tensor

from ood_lab.detectors.support.chunked_arithmetic import blocks
from ood_lab.detectors.support.compute_device import on_device


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
    eps32, eps64 = (torch.finfo(dtype).eps for dtype in (torch.float32, torch.float64))
    kept = values > max(eps32**2 * square, len(moment) * eps64 * values[-1].item())
    return values[kept], vectors[:, kept]


def shrunk(covariance: Tensor, features: Tensor, mean: Tensor) -> tuple[Tensor, float]:
    r"""The covariance shrunk towards a sphere (Ledoit and Wolf 2004, J. Multivariate Analysis 88).

    .. math::
        \Sigma^* = (1 - \rho) S + \rho \mu I, \quad \mu = \tfrac1D \mathrm{tr} S, \qquad
        \rho = \min\Big(1, \frac{\tfrac1n (E\|x - m\|^4 - \|S\|_F^2)}{\|S\|_F^2 - D \mu^2}\Big)

    Args:
        covariance: S, of all rows.
        features: ``[n, D]``.
        mean: m.

    Returns:
        Σ* and ρ.
    """
    d, center, fourth = len(covariance), on_device(mean), 0.0
    for _, x in blocks(features):
        lengths = (x.double() - center).square().sum(dim=1)
        fourth += float(lengths.square().sum())
    mu, square = float(covariance.trace()) / d, float(covariance.square().sum())
    spread = square - d * mu**2
    share = (fourth / len(features) - square) / len(features)
    rho = min(1.0, share / spread) if spread > 0 else 1.0
    sphere = torch.eye(d, dtype=covariance.dtype)
    return (1 - rho) * covariance + rho * mu * sphere, rho


def whitening(moment: Tensor, square: float) -> Tensor:
    """T = V diag(λ)^(-1/2) ``[D, r]`` of :func:`spanned`: T T^T is the pseudo-inverse."""
    values, vectors = spanned(moment, square)
    return vectors / values.sqrt()
