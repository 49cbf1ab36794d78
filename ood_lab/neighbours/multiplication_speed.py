"""What this machine multiplies fast, and without losing digits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor

#: How much faster bfloat16 products must be than float32 ones to be worth a second look.
_WORTHWHILE = 2.0


@contextmanager
def full_float32() -> Iterator[None]:
    """No TF32, bfloat16 or float16 sums inside matrix products, whatever was set before."""
    before = torch.get_float32_matmul_precision()
    cuda = torch.backends.cuda.matmul
    reduced = cuda.allow_fp16_reduced_precision_reduction
    torch.set_float32_matmul_precision("highest")
    cuda.allow_fp16_reduced_precision_reduction = False
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        cuda.allow_fp16_reduced_precision_reduction = reduced


def fastest_dtype(device: torch.device) -> torch.dtype:
    """Type of the first pass: float16 on a GPU, bfloat16 on a CPU with native products of it."""
    if device.type == "cuda":
        return torch.float16
    native = device.type == "cpu" and bfloat16_gain() >= _WORTHWHILE
    return torch.bfloat16 if native else torch.float32


@cache
def bfloat16_gain() -> float:
    """How many times faster this processor multiplies bfloat16 than float32; measured once."""
    a, b = torch.randn(1024, 256), torch.randn(256, 4096)
    with full_float32():
        plain = seconds(lambda: a @ b)
    half = (a.bfloat16(), b.bfloat16())
    return plain / seconds(lambda: half[0] @ half[1])


def seconds(run: Callable[[], Tensor]) -> float:
    """Shortest of three runs after a first one."""
    run()
    times = []
    for _ in range(3):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)
