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


def whitening(moment: Tensor, square: float) -> Tensor:
    """T = V diag(λ)^(-1/2) ``[D, r]`` of :func:`spanned`: T T^T is the pseudo-inverse."""
    values, vectors = spanned(moment, square)
    return vectors / values.sqrt()
