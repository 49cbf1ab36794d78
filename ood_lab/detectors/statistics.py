"""Moments of the features that several detectors estimate, in float64 and by row chunks."""

from __future__ import annotations

import torch
from torch import Tensor

from ood_lab.detectors.numeric import row_chunks


def feature_mean(features: Tensor) -> Tensor:
    """Mean of all rows ``[N, D]``: ``[D] float64``."""
    total = torch.zeros(features.shape[1], dtype=torch.float64)
    for rows in row_chunks(*features.shape):
        total += features[rows].sum(dim=0, dtype=torch.float64)
    return total / len(features)


def mean_square(features: Tensor) -> float:
    """E‖x‖² over the rows."""
    total = sum(
        features[rows].double().square().sum().item() for rows in row_chunks(*features.shape)
    )
    return total / len(features)


def class_means(features: Tensor, codes: Tensor, classes: int) -> Tensor:
    """Means of the rows of every class: ``[classes, D] float64``; each must have a row.

    Args:
        features: ``[N, D]``.
        codes: class of every row, ``[N]`` in 0 to ``classes`` - 1.
        classes: how many there are.
    """
    sums = torch.zeros(classes, features.shape[1], dtype=torch.float64)
    for rows in row_chunks(*features.shape):
        sums.index_add_(0, codes[rows], features[rows].double())
    return sums / codes.bincount(minlength=classes)[:, None]


def second_moment(features: Tensor, center: Tensor, codes: Tensor | None = None) -> Tensor:
    """E[(x - c)(x - c)^T] over the rows, ``[D, D] float64``.

    Args:
        features: ``[N, D]``.
        center: c ``[D]``, or one a class, ``[C, D]``, for rows of the classes ``codes``.
        codes: class of every row, ``[N]``; None where all have the same center.
    """
    n, d = features.shape
    scatter = torch.zeros(d, d, dtype=torch.float64)
    for rows in row_chunks(n, d):
        centered = features[rows].double()
        centered -= center if codes is None else center[codes[rows]]
        scatter.addmm_(centered.T, centered)
    return scatter / n


def spanned(moment: Tensor, square: float) -> tuple[Tensor, Tensor]:
    """Eigenvalues λ ``[r]``, ascending, and vectors ``[D, r]`` of directions that are not noise.

    Those whose λ exceeds what rounding the features to float32 can make, eps32² E‖x‖², and eigh's
    error, D eps64 λ_max. The others are collinear or dead features.

    Args:
        moment: of :func:`second_moment`, finite.
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
