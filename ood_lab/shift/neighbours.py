"""Cosine distance to the k-th nearest row of a large bank, exact and in bounded memory."""

from __future__ import annotations

import importlib.util
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from ood_lab.errors import UserError
from ood_lab.shift.candidates import CandidateSearch, blocks_for
from ood_lab.shift.grid import Progress
from ood_lab.shift.speed import fastest_dtype, full_float32, seconds

#: Blocks of queries between two calls of the progress function.
_BLOCKS_A_REPORT = 4


class NeighbourSearch:
    """Cosine distance to the k-th nearest row of a bank, exact in float32.

    Large banks are searched by :class:`ood_lab.shift.candidates.CandidateSearch`, in bfloat16
    where the processor multiplies it natively (measured once) and in float16 on a GPU; queries
    without certificate once more in float32, and what is still uncertain (hundreds of equal rows),
    like small banks, by plain products. Where half precision certifies fewer than half of the
    queries it is given up: very dense banks, in which the k-th neighbour is one of hundreds within
    0.01 of each other. On a processor without native bfloat16, faiss takes the place of float32
    candidates where it is installed and faster (measured once).

    Args:
        bank: rows of length 1, ``[M, d] float32``.
        k: neighbour.
        device: where to search; by default where the bank is. The bank is moved there.
        dtype: of the first pass over a large bank; by default the fastest here.

    Raises:
        UserError: k below 1, or more than the rows.
        ValueError: rows not of length 1, or not finite.
    """

    def __init__(
        self,
        bank: Tensor,
        k: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_k(k, len(bank), "the ID set has")
        _check_unit(bank, "bank")
        self.k = k
        self.bank = bank if device is None else bank.to(device)
        self._dtypes: list[torch.dtype] = []
        self._searches: dict[torch.dtype, CandidateSearch] = {}
        if CandidateSearch.fits(len(bank), k + 1):
            first = dtype or fastest_dtype(self.bank.device)
            self._dtypes = list(dict.fromkeys([first, torch.float32]))
        on_cpu = self.bank.device.type == "cpu"
        self._faiss = on_cpu and dtype is None and self._dtypes == [torch.float32] and _faiss_wins()

    def distance(
        self, queries: Tensor, *, in_bank: bool = False, progress: Progress | None = None
    ) -> Tensor:
        """``1 - (k-th largest cosine)`` of each query, ``[N] float32`` in [0, 2], on the CPU.

        Args:
            queries: rows of length 1, ``[N, d] float32``.
            in_bank: the queries are rows of the bank; the k-th neighbour besides itself counts.
                A row is its own nearest match, so that is the (k + 1)-th.
            progress: receives the share of the queries done.

        Raises:
            UserError: k other rows are wanted of a bank of k.
            ValueError: rows not of length 1, or not finite.
        """
        n = self.k + in_bank
        if in_bank:
            check_k(n, len(self.bank), "without itself, each of them counting one of")
        _check_unit(queries, "queries")
        found = torch.empty(len(queries))
        step = _BLOCKS_A_REPORT * blocks_for(self.bank.device).queries
        with full_float32():
            for start in range(0, len(queries), step):
                part = queries[start : start + step].to(self.bank.device)
                found[start : start + step] = self._nth(part, n).cpu()
                if progress is not None:
                    progress(min(start + step, len(queries)) / len(queries))
        return (1 - found).clamp(0, 2)

    def _nth(self, queries: Tensor, n: int, stage: int = 0) -> Tensor:
        if self._faiss:
            return faiss_nth_product(queries, self.bank, n)
        if stage == len(self._dtypes):
            return nth_product(queries, self.bank, n)
        products, certified = self._search(self._dtypes[stage]).nth_product(queries, n)
        if not bool(certified.all()):
            products[~certified] = self._nth(queries[~certified], n, stage + 1)
        if stage == 0 and len(self._dtypes) > 1 and float(certified.float().mean()) < 0.5:
            del self._dtypes[0]
        return products

    def _search(self, dtype: torch.dtype) -> CandidateSearch:
        if dtype not in self._searches:
            self._searches[dtype] = CandidateSearch(self.bank, self.k + 1, dtype)
        return self._searches[dtype]


def nth_product(queries: Tensor, bank: Tensor, n: int) -> Tensor:
    """n-th largest product of each query with the bank, ``[Q, d], [M, d] -> [Q]``, in blocks."""
    size = blocks_for(bank.device)
    found = queries.new_empty(len(queries))
    for start in range(0, len(queries), size.queries):
        part = queries[start : start + size.queries]
        best = part.new_full((len(part), n), -torch.inf)
        for rows in bank.split(size.rows):
            best = torch.cat([best, part @ rows.T], dim=1).topk(n).values
        found[start : start + size.queries] = best[:, -1]
    return found


def faiss_nth_product(queries: Tensor, bank: Tensor, n: int) -> Tensor:
    """:func:`nth_product` by faiss, on the CPU."""
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())
    found, _ = faiss.knn(queries.numpy(), bank.numpy(), n, metric=faiss.METRIC_INNER_PRODUCT)
    return torch.from_numpy(found[:, -1])


@cache
def _faiss_wins() -> bool:
    """Whether faiss is installed and faster than float32 candidates on a bank of 65,536 rows.

    Some of its builds do not know the processor and are several times slower than they could be.
    """
    if importlib.util.find_spec("faiss") is None:
        return False
    bank = F.normalize(torch.randn(65_536, 256), dim=1)
    queries, search = bank[::128], CandidateSearch(bank, 10, torch.float32)
    return seconds(lambda: faiss_nth_product(queries, bank, 10)) < seconds(
        lambda: search.nth_product(queries, 10)[0]
    )


def check_k(k: int, rows: int, what: str) -> None:
    """Raises :class:`UserError` unless there is a k-th among so many rows."""
    if k < 1:
        raise UserError(f"k={k}: give a neighbour from 1")
    if k > rows:
        raise UserError(f"k={k} neighbours: {what} {rows:,} images; lower k or give more ID images")


def _check_unit(rows: Tensor, name: str) -> None:
    if rows.ndim != 2:
        raise ValueError(f"{name}: expected [N, d], got {tuple(rows.shape)}")
    for chunk in rows.split(65_536):
        length = torch.linalg.vector_norm(chunk, dim=1)
        bad = ~((length - 1).abs() < 1e-3)
        if bool(bad.any()):
            raise ValueError(
                f"{name}: expected rows of length 1, {int(bad.sum())} are not, such as one of "
                f"length {float(length[bad][0]):g}"
            )
