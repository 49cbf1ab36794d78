"""The nearest rows of a large bank, exact and in bounded memory, and how many of them count."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor

import torch
from torch import Tensor

from ood_lab.common.errors import UserError
from ood_lab.neighbours.matrix_precision import full_float32
from ood_lab.neighbours.row_blocks import Rows, product_blocks

#: Groups of the queries ``[N]`` and of the rows of a bank ``[M]``.
Groups = tuple[Tensor, Tensor]
#: Queries that are on the device at a time, by its type.
_STEP = {"cpu": 8192}
_STEP_ELSEWHERE = 65_536
#: Share of a class that the neighbourhood is.
SHARE = 10
#: Classes that images without labels are taken to be of.
UNKNOWN_CLASSES = 10


class NeighbourSearch:
    """The k-th largest product with the rows of a bank, exact in float32.

    Only the product with the k-th neighbour is computed, so that it does not matter which of equal
    rows is called the k-th.

    Args:
        bank: ``[M, d] float32``, read in blocks.
        k: neighbour.
        device: where to search; by default where the bank is. The bank is moved there, unless it
            would take more than half of the free memory of a GPU: then its blocks travel there in
            every pass.

    Raises:
        UserError: k below 1, or more than the rows.
    """

    def __init__(
        self, bank: Tensor | Rows, k: int, device: torch.device | str | None = None
    ) -> None:
        check_k(k, len(bank), "the ID set has")
        self.k = k
        rows = bank if isinstance(bank, Rows) else Rows(bank)
        self.device = rows.device if device is None else torch.device(device)
        self.bank = rows.to(self.device) if _fits(rows, self.device) else rows

    def product(self, queries: Tensor, groups: Groups | None = None) -> Tensor:
        """The k-th largest product of each query, ``[N, d] -> [N] float32``, on the CPU.

        NaN for a query that is not finite.

        Args:
            queries: ``[N, d] float32``, on any device.
            groups: of the queries ``[N]`` and of the rows of the bank ``[M]``, integers: rows of a
                query's own group do not count. -inf for a query with fewer than k other rows.
        """
        if torch.jit.is_tracing():
            return largest_products(queries, self.bank, self.k).amin(dim=1)
        largest = torch.empty(len(queries))
        step = _STEP.get(self.device.type, _STEP_ELSEWHERE)
        with full_float32():
            for start in range(0, len(queries), step):
                part = queries[start : start + step].to(self.device)
                of_part = groups and (groups[0][start : start + step], groups[1])
                products = largest_products(part, self.bank, self.k, of_part)
                largest[start : start + step] = products.amin(dim=1).cpu()
        return largest


def _fits(bank: Rows, device: torch.device) -> bool:
    """Whether the bank can stay on the device in addition to what a search needs."""
    if device.type != "cuda" or bank.device.type == "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return 2 * bank.features.nbytes <= free


def largest_products(queries: Tensor, bank: Rows, n: int, groups: Groups | None = None) -> Tensor:
    """The n largest products of each query with the bank, unsorted: ``[Q, d] -> [Q, n]``.

    In blocks of both, of the device and the precision of the queries. With ``groups``, rows of a
    query's own group do not count. With offsets -‖b‖²/2 these are the n nearest rows.
    """
    if torch.jit.is_tracing():  # an exported graph ranks all products at once
        rows = bank.to(queries)
        products = queries @ rows.scaled().T
        products = products if rows.offset is None else products + rows.offset
        return products.topk(n, dim=1, sorted=False).values
    of_queries, of_rows = (g.to(queries.device) for g in groups) if groups else (None, None)
    best = queries.new_empty(len(queries), n)
    size = product_blocks(queries.device)
    space = queries.new_empty(min(size.queries, len(queries)), min(size.rows, len(bank)) + n)
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        for start in range(0, len(queries), size.queries):
            part = queries[start : start + size.queries]
            # The n largest so far are the last columns, which new products do not touch. What lies
            # before them are products already ranked lower, so that a short block may leave some.
            products = space[: len(part)].fill_(-torch.inf)
            for number, rows in enumerate(bank.blocks_for(queries)):
                new = products[:, : len(rows)]
                rows.products(part, out=new)
                if of_queries is not None and of_rows is not None:
                    of_block = of_rows[number * size.rows :][: len(rows)]
                    new[of_queries[start : start + len(part), None] == of_block] = -torch.inf
                _largest_last(products, n, pool)
            best[start : start + size.queries] = products[:, -n:]
    return best


def nearest_rows(queries: Tensor, bank: Tensor, places: Tensor) -> Tensor:
    """Row of the largest product with each query, ``[N, d] -> [N] int64``; exact in float32.

    Of rows with equal products, the first counts.

    Args:
        queries: ``[N, d] float32``, on the bank's device.
        bank: ``[M, d] float32``, read in blocks.
        places: row of each query in the bank, ``[N] int64``, which is not its own neighbour; -1 of
            a query that is not in it.

    Raises:
        UserError: no row is left other than the query's own.
    """
    check_k(2, len(bank), "without itself, the pool has")
    size = product_blocks(queries.device).queries
    with full_float32():
        parts = zip(queries.split(size), places.split(size), strict=True)
        return torch.cat([_nearest(part, bank, own_rows) for part, own_rows in parts])


def _nearest(queries: Tensor, bank: Tensor, places: Tensor) -> Tensor:
    best = queries.new_full((len(queries),), -torch.inf)
    nearest, start = torch.zeros_like(places), 0
    for rows in bank.split(product_blocks(queries.device).rows):
        products = queries @ rows.T
        inside = ((places >= start) & (places < start + len(rows))).nonzero().flatten()
        products[inside, places[inside] - start] = -torch.inf
        values, rows_of = products.max(dim=1)
        better = values > best
        best = torch.where(better, values, best)
        nearest = torch.where(better, rows_of + start, nearest)
        start += len(rows)
    return nearest


def _largest_last(values: Tensor, n: int, pool: Executor) -> None:
    """Moves the n largest of every row to its end, in any order. NaN counts as the largest."""
    if values.device.type != "cpu":
        best = values.topk(n, dim=1, sorted=False).values
        values.fill_(-torch.inf)[:, -n:] = best
        return
    # NumPy's partition takes the same time for any n; torch.topk is four times slower at 1000.
    place = values.shape[1] - n
    parts = [part.numpy() for part in values.chunk(torch.get_num_threads())]
    list(pool.map(lambda part: part.partition(place, axis=1), parts))


def check_k(k: int, rows: int, what: str) -> None:
    """Raises :class:`UserError` unless there is a k-th among so many rows."""
    if k < 1:
        raise UserError(f"k={k}: give a whole number of at least 1")
    if k > rows:
        raise UserError(f"k={k} neighbours: {what} {rows:,} images; lower k or give more ID images")


def neighbour_count(images: int, classes: int, largest: int) -> int:
    r"""K from the number of images of a class: a tenth, rounded up.

    .. math:: k = \min\Big(k_{\max}, \Big\lceil \frac{n}{10 C} \Big\rceil\Big)

    The k-th neighbour has to be of the class of the image: where k exceeds its images, the
    distance is that to the next class, which an OOD image between the classes is nearer to. A tenth
    keeps k inside the class also where classes are of unequal size, and smooths over single odd
    images from 11 images of a class. From 10 k_max images of a class on it is the authors' k.

    Args:
        images: n, of the bank; groups where images belong together.
        classes: C that the bank holds; 0 = unknown: 10.
        largest: k_max, the authors' k.

    Returns:
        k, at least 1; at most n where n > 0.
    """
    per_neighbour = SHARE * (classes or UNKNOWN_CLASSES)
    return max(1, min(largest, -(-images // per_neighbour)))
