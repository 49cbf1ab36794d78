"""Which row of a bank is nearest, where the search of the k-th product only says how near."""

from __future__ import annotations

import torch
from torch import Tensor

from ood_lab.neighbours.exact_search import check_k
from ood_lab.neighbours.multiplication_speed import full_float32
from ood_lab.neighbours.row_blocks import Rows

#: Queries and rows that are multiplied at a time: 16 MiB of products.
_QUERIES, _ROWS = 1024, 4096


def nearest_rows(queries: Tensor, bank: Tensor | Rows, own: Tensor | None = None) -> Tensor:
    """Row of the largest product with each query, ``[N, d] -> [N] int64``; exact in float32.

    Of rows with equal products, the first counts.

    Args:
        queries: ``[N, d] float32``, on the bank's device.
        bank: ``[M, d] float32``, read in blocks.
        own: row of each query in the bank, ``[N] int64``, which is not its own neighbour.

    Raises:
        UserError: no row is left other than the query's own.
    """
    rows = bank if isinstance(bank, Rows) else Rows(bank)
    check_k(1 + (own is not None), len(rows), "without itself, the pool has")
    found = torch.zeros(len(queries), dtype=torch.int64, device=queries.device)
    with full_float32():
        for start in range(0, len(queries), _QUERIES):
            part = slice(start, min(start + _QUERIES, len(queries)))
            found[part] = _nearest(queries[part], rows, None if own is None else own[part])
    return found


def _nearest(queries: Tensor, bank: Rows, own: Tensor | None) -> Tensor:
    best = queries.new_full((len(queries),), -torch.inf)
    found = torch.zeros(len(queries), dtype=torch.int64, device=queries.device)
    space = queries.new_empty(len(queries), min(_ROWS, len(bank)))
    for number, rows in enumerate(bank.split(_ROWS)):
        start, products = number * _ROWS, space[:, : len(rows)]
        rows.products(queries, out=products)
        if own is not None:
            inside = ((own >= start) & (own < start + len(rows))).nonzero().flatten()
            products[inside, own[inside] - start] = -torch.inf
        values, places = products.max(dim=1)
        better = values > best
        best = torch.where(better, values, best)
        found = torch.where(better, places + start, found)
    return found
