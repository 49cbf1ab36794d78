"""The common part of detectors that reshape features before the last layer."""

from __future__ import annotations

from collections.abc import Callable

import torch
from pytorch_ood.detector import EnergyBased
from torch import Tensor

from ood_lab.detectors.support.chunked_arithmetic import map_rows
from ood_lab.detectors.support.compute_device import head_on_device
from ood_lab.features.bank import FeatureBank


def head_energy(bank: FeatureBank, shape: Callable[..., Tensor], *more: Tensor) -> Tensor:
    """-log Σ_c exp(W x' + b)_c of x' = ``shape(x)``, ``[N] float64``.

    Args:
        bank: features and head.
        shape: maps features ``[b, D] float64``, and as many rows of ``more``, to as many features;
            must not write to them.
        more: ``[N, ...]`` each.
    """
    weight, bias = head_on_device(bank)

    def energy(*rows: Tensor) -> Tensor:
        return EnergyBased.score(shape(*rows) @ weight.T + bias)

    return map_rows(energy, bank.features, *more, width=len(weight))


def kept_count(d: int, percentile: float) -> int:
    """K = D - round(D p / 100), the entries that remain of D; at least one."""
    d = int(d)  # a tensor where a graph is traced
    return max(1, d - round(d * percentile / 100))


def scale_ratio(x: Tensor, k: int) -> Tensor:
    """R = Σ x / Σ of the k largest, ``[n, 1]``, from 1 for x of at least 0; 1 for a zero vector."""
    return _ratio(x, x.topk(k, dim=1).values.sum(dim=1, keepdim=True))


def scale_ratio_each(x: Tensor, k: Tensor) -> Tensor:
    """:func:`scale_ratio` with a k of its own for every row, ``[n] int64``."""
    largest = x.sort(dim=1, descending=True).values.cumsum(dim=1)
    return _ratio(x, largest.gather(1, k[:, None] - 1))


def _ratio(x: Tensor, part: Tensor) -> Tensor:
    total = x.sum(dim=1, keepdim=True)
    return torch.where(part == 0, 1, total / torch.where(part == 0, 1, part))
