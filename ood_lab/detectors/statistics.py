"""Moments of the features that several detectors estimate, in float64 and by row blocks.

Blocks are summed on the computing device; every result lies on the CPU. ``chosen`` are the numbers
of the rows that count, ``[n] int64``, so that they need not be copied out of a bank; None = all.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ood_lab.detectors.device import on_device
from ood_lab.detectors.numeric import blocks


def rows_where(mask: Tensor) -> Tensor | None:
    """Numbers of the rows where ``mask [N]`` is true, as ``chosen`` takes them; None = all are."""
    return None if bool(mask.all()) else mask.nonzero().flatten()


def feature_mean(features: Tensor, chosen: Tensor | None = None) -> Tensor:
    """Mean of the rows of ``[N, D]``: ``[D] float64``."""
    total = on_device(torch.zeros(features.shape[1], dtype=torch.float64))
    for _, x in blocks(features, chosen):
        total += x.sum(dim=0, dtype=torch.float64)
    return total.cpu() / _count(features, chosen)


def mean_square(features: Tensor, chosen: Tensor | None = None) -> float:
    """E‖x‖² over the rows."""
    total = sum(x.double().square().sum().item() for _, x in blocks(features, chosen))
    return total / _count(features, chosen)


def class_means(
    features: Tensor, codes: Tensor, classes: int, chosen: Tensor | None = None
) -> Tensor:
    """Means of the rows of every class: ``[classes, D] float64``; each must have a row.

    Args:
        features: ``[N, D]``.
        codes: class of every row that counts, ``[n]`` in 0 to ``classes`` - 1.
        classes: how many there are.
        chosen: numbers of these rows.
    """
    sums = on_device(torch.zeros(classes, features.shape[1], dtype=torch.float64))
    for rows, x in blocks(features, chosen):
        sums.index_add_(0, on_device(codes[rows]), x.double())
    return sums.cpu() / codes.bincount(minlength=classes)[:, None]


def second_moment(
    features: Tensor,
    center: Tensor,
    codes: Tensor | None = None,
    chosen: Tensor | None = None,
) -> Tensor:
    """E[(x - c)(x - c)^T] over the rows, ``[D, D] float64``.

    Args:
        features: ``[N, D]``.
        center: c ``[D]``, or one per class, ``[C, D]``, for rows of the classes ``codes``.
        codes: class of every row that counts, ``[n]``; None where all have the same center.
        chosen: numbers of these rows.
    """
    d = features.shape[1]
    scatter, center = on_device(torch.zeros(d, d, dtype=torch.float64)), on_device(center)
    for rows, x in blocks(features, chosen):
        centered = x.double()
        centered -= center if codes is None else center[on_device(codes[rows])]
        scatter.addmm_(centered.T, centered)
    return scatter.cpu() / _count(features, chosen)


def _count(features: Tensor, chosen: Tensor | None) -> int:
    return len(features if chosen is None else chosen)


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
