"""Row-chunked float64 arithmetic, so that memory never grows with the number of images."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from ood_lab.detectors.support.compute_device import on_device

#: Size of one float64 working array.
CHUNK_BYTES = 64 * 2**20
#: Rows that are turned into columns at a time: both lie in the caches, five times faster.
TILE = 256


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
    squares = a.square().sum(1, keepdim=True) + b.square().sum(1)
    return torch.addmm(squares, a, b.T, alpha=-2).clamp_(min=0)


def percentile(values: Tensor, percent: float) -> float:
    """Exact percentile of all entries (linear interpolation), without sorting or copying them.

    ``v[r] + (r' - r)(v[r + 1] - v[r])`` with ``r' = percent / 100 (n - 1)``, ``r = floor(r')``,
    where ``v`` are the sorted entries. ``torch.quantile`` stops at 16 million entries and
    ``numpy.percentile`` copies them; here only those are sorted that lie between two entries of a
    sample, and those below are counted.

    Args:
        values: ``[N, D] float32``, finite.
        percent: 0 to 100.
    """
    position = percent / 100 * (values.numel() - 1)
    rank = int(position)
    low, high = _order_statistics(values, rank, min(rank + 1, values.numel() - 1))
    return low + (position - rank) * (high - low)


def _order_statistics(values: Tensor, *ranks: int) -> list[float]:
    """The ``ranks``-th smallest entries (from 0), which are next to each other."""
    sample = _sample(values).sort().values
    share = len(sample) / values.numel()
    place, spread = ranks[0] * share, 3 * math.sqrt(len(sample)) / 2 + 8
    while True:
        first, last = math.floor(place - spread), math.ceil(place + spread)
        low = sample[first].item() if first >= 0 else -math.inf
        high = sample[last].item() if last < len(sample) else math.inf
        below, up_to_low, up_to_high, inside = _counted(values, low, high)
        if (below <= ranks[0] and ranks[-1] < up_to_high) or (low, high) == (-math.inf, math.inf):
            entries = [low if r < up_to_low else high for r in ranks]
            for i, r in enumerate(ranks):
                if 0 <= r - up_to_low < len(inside):
                    entries[i] = inside[r - up_to_low].item()
            return entries
        # The sample was off by so much here; a wider part of it is taken around the right place.
        off = first - below * share if below > ranks[0] else last - up_to_high * share
        place, spread = ranks[0] * share + off, 2 * spread


def _sample(values: Tensor) -> Tensor:
    """A million entries from all over ``values``, or all."""
    n, d = values.shape
    if n * d <= 2**20:
        return values.float().flatten()
    rows = torch.linspace(0, n - 1, min(n, 2**14), dtype=torch.float64).long()
    wide = min(d, 64)
    columns = torch.arange(len(rows))[:, None] + torch.arange(wide) * (d // wide)
    return values[rows[:, None], columns % d].float().flatten()


def _counted(values: Tensor, low: float, high: float) -> tuple[int, int, int, Tensor]:
    """Entries below ``low``, up to it, up to ``high``, and those between the two, sorted."""
    counts, inside = [0, 0, 0], []
    for rows in row_chunks(values.shape[0], values.shape[1]):
        x = values[rows].float()
        for place, smaller in enumerate((x < low, x <= low, x <= high)):
            counts[place] += int(torch.count_nonzero(smaller))
        inside.append(x[(x > low) & (x < high)])
    return counts[0], counts[1], counts[2], torch.cat(inside).sort().values


def column_percentiles(values: Tensor, percents: Sequence[float]) -> Tensor:
    """Exact percentiles of every column (linear interpolation), ``[P, D] float64``.

    The digits are those of ``numpy.percentile`` of float64 columns, which are copied there.

    Args:
        values: ``[N, D] float32``, finite.
        percents: 0 to 100, P of them.
    """
    n, d = values.shape
    places = np.array(percents) / 100 * (n - 1)
    lower = places.astype(int)
    upper = np.minimum(lower + 1, n - 1)
    ends = np.empty((2, len(places), d))
    wide = min(d, max(1, CHUNK_BYTES // (4 * n)))
    columns = np.empty((wide, n), np.float32)
    for start in range(0, d, wide):
        for row in range(0, n, TILE):
            part = values[row : row + TILE, start : start + wide]
            columns[: part.shape[1], row : row + TILE] = part.float().numpy().T
        for column, x in zip(range(start, min(start + wide, d)), columns, strict=False):
            x.sort()  # with the processor's vectors: three times faster than to partition
            ends[:, :, column] = x[[lower, upper]]
    (low, high), after = ends, (places - lower)[:, None]
    between = np.where(after < 0.5, low + (high - low) * after, high - (high - low) * (1 - after))
    return torch.from_numpy(between)
