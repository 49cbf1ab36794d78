"""Small computations of tensors, and random draws from a seed."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
from torch import Tensor


def squared_norms(x: Tensor) -> Tensor:
    r""":math:`\|x\|_2^2` of every row of ``x [N, D]``, ``[N]``."""
    return x.square().sum(dim=1)


def all_finite(x: Tensor) -> bool:
    """No NaN and nothing infinite."""
    return bool(x.isfinite().all())


def largest_difference(a: Tensor, b: Tensor) -> float:
    """Largest |a - b|."""
    return float((a - b).abs().max())


def full_precision(x: Tensor) -> AbstractContextManager[None]:
    """No automatic mixed precision inside, on the device of ``x``."""
    return torch.autocast(x.device.type, enabled=False)


def random_numbers(seed: int) -> torch.Generator:
    """A generator on the CPU."""
    return torch.Generator().manual_seed(seed)


def permutation(n: int, seed: int) -> Tensor:
    """The numbers below n in random order."""
    return torch.randperm(n, generator=random_numbers(seed))
