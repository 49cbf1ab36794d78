"""Row-chunked float64 arithmetic, so that memory never grows with the number of images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from ood_lab.common.tensor_arithmetic import squared_norms
from ood_lab.detectors.support.compute_device import on_device

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
    if torch.jit.is_tracing():  # an exported graph takes any number of rows, all at once
        return function(*(tensor.double() for tensor in tensors))
    widest = max(width, *(tensor[:1].numel() for tensor in tensors))
    out = torch.empty(len(tensors[0]), dtype=torch.float64)
    for rows in row_chunks(len(out), widest):
        # As float32, half as many bytes travel.
        out[rows] = function(*(on_device(tensor[rows]).double() for tensor in tensors))
    return out


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """``|a_i - b_j|^2`` as ``|a_i|^2 + |b_j|^2 - 2 a_i . b_j``: ``[n, D], [m, D] -> [n, m]``."""
    squares = squared_norms(a)[:, None] + squared_norms(b)
    return torch.addmm(squares, a, b.T, alpha=-2).clamp_(min=0)


def percentile(values: Tensor, percent: float) -> float:
    """Exact percentile of all entries (linear interpolation), of a copy of them.

    ``v[r] + (r' - r)(v[r + 1] - v[r])`` with ``r' = percent / 100 (n - 1)``, ``r = floor(r')``,
    where ``v`` are the sorted entries. ``torch.quantile`` stops at 16 million entries.

    Args:
        values: ``[N, D] float32``, finite.
        percent: 0 to 100.
    """
    position = percent / 100 * (values.numel() - 1)
    rank = int(position)
    places = [rank, min(rank + 1, values.numel() - 1)]
    low, high = np.partition(values.float().numpy(), places, axis=None)[places].tolist()
    return low + (position - rank) * (high - low)


def column_percentiles(values: Tensor, percents: Sequence[float]) -> Tensor:
    """Exact percentiles of every column (linear interpolation), ``[P, D] float64``.

    Args:
        values: ``[N, D] float32``, finite.
        percents: 0 to 100, P of them.
    """
    wide = max(1, CHUNK_BYTES // (8 * len(values)))
    parts = [
        np.percentile(part.double().T.contiguous().numpy(), percents, axis=1, overwrite_input=True)
        for part in values.split(wide, dim=1)
    ]
    return torch.from_numpy(np.concatenate(parts, axis=1))
