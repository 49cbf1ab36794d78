"""Row-chunked float64 arithmetic, so that memory never grows with the number of images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from ood_lab.detectors.device import on_device

#: Size of one float64 working array.
CHUNK_BYTES = 64 * 2**20


def row_chunks(n: int, width: int) -> Iterator[slice]:
    """Slices of ``n`` rows such that ``rows x width`` float64 numbers take up to 64 MiB."""
    rows = max(1, CHUNK_BYTES // (8 * max(1, width)))
    for start in range(0, n, rows):
        yield slice(start, min(start + rows, n))


def blocks(values: Tensor, chosen: Tensor | None = None) -> Iterator[tuple[slice, Tensor]]:
    """Row blocks on the computing device, each with its place among the rows.

    Args:
        values: ``[N, D]``, never copied as a whole.
        chosen: numbers of the rows that are wanted, ``[n] int64``; None = all.
    """
    for rows in row_chunks(len(values) if chosen is None else len(chosen), values.shape[1]):
        yield rows, on_device(values[rows if chosen is None else chosen[rows]])


def map_rows(function: Callable[..., Tensor], *tensors: Tensor, width: int = 0) -> Tensor:
    """Applies ``function`` to float64 copies of row chunks and joins the results on the CPU.

    Args:
        function: maps chunks ``[b, ...] float64`` of ``tensors``, on the computing device, to
            ``[b]``. What else it works with has to lie there too (:func:`on_device`).
        tensors: ``[N, ...]`` each; never modified.
        width: columns of what ``function`` builds, if wider than the tensors.

    Returns:
        ``[N] float64``.
    """
    widest = max(width, *(tensor[:1].numel() for tensor in tensors))
    out = torch.empty(len(tensors[0]), dtype=torch.float64)
    for rows in row_chunks(len(out), widest):
        # As float32, half as many bytes travel.
        out[rows] = function(*(on_device(tensor[rows]).double() for tensor in tensors))
    return out


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """``|a_i - b_j|^2`` as ``|a_i|^2 + |b_j|^2 - 2 a_i . b_j``: ``[n, D], [m, D] -> [n, m]``."""
    squares = a.square().sum(1, keepdim=True) + b.square().sum(1)
    return torch.addmm(squares, a, b.T, alpha=-2).clamp_(min=0)


def percentile(values: Tensor, percent: float) -> float:
    """Exact percentile of all entries (linear interpolation), without sorting or copying them.

    ``v[r] + (r' - r)(v[r + 1] - v[r])`` with ``r' = percent / 100 (n - 1)``, ``r = floor(r')``,
    where ``v`` are the sorted entries. ``torch.quantile`` stops at 16 million entries and
    ``numpy.percentile`` copies them; here the order statistics are found by counting.

    Args:
        values: ``[N, D] float32``, finite.
        percent: 0 to 100.
    """
    position = percent / 100 * (values.numel() - 1)
    rank = int(position)
    low, high = _order_statistics(values, [rank, min(rank + 1, values.numel() - 1)])
    return low + (position - rank) * (high - low)


def _order_statistics(values: Tensor, ranks: list[int]) -> list[float]:
    """The ``ranks``-th smallest entries (from 0): radix selection on two 16-bit halves."""
    upper = _count(keys >> 16 for keys in _sorted_keys(values))
    below = np.cumsum(upper)
    halves = [int(np.searchsorted(below, rank, side="right")) for rank in ranks]
    lower = {
        half: _count(keys[keys >> 16 == half] & 0xFFFF for keys in _sorted_keys(values))
        for half in set(halves)
    }
    found = []
    for rank, half in zip(ranks, halves, strict=True):
        inside = rank - int(below[half] - upper[half])
        place = int(np.searchsorted(np.cumsum(lower[half]), inside, side="right"))
        key = np.uint32(half << 16 | place)
        bits = key ^ np.uint32(0x80000000) if key >> 31 else ~key
        found.append(float(np.array([bits], dtype=np.uint32).view(np.float32)[0]))
    return found


def _count(chunks: Iterable[np.ndarray]) -> np.ndarray:
    counts = np.zeros(1 << 16, dtype=np.int64)
    for halves in chunks:
        counts += np.bincount(halves, minlength=len(counts))
    return counts


def _sorted_keys(values: Tensor) -> Iterator[np.ndarray]:
    """Chunks of uint32 keys that sort as the float32 entries do."""
    for rows in row_chunks(len(values), values.shape[1]):
        bits = values[rows].float().contiguous().numpy().ravel().view(np.uint32)
        # Positive floats sort as their bits do, negative ones the other way round.
        yield np.where(bits >> 31, ~bits, bits | np.uint32(0x80000000))
