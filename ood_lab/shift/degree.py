"""Shift degrees: how far an image is from the ID set in meaning and in looks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import NamedTuple

import torch
from torch import Tensor

from ood_lab.axes import AXES, Axis
from ood_lab.errors import UserError
from ood_lab.shift.candidates import CandidateSearch, blocks_for
from ood_lab.shift.grid import Progress
from ood_lab.shift.laid import Decomposition

#: Blocks of queries between two calls of the progress function.
_BLOCKS_A_REPORT = 4
#: How much faster bfloat16 products must be than float32 ones to be worth a second look.
_WORTHWHILE = 1.5


class ShiftDegrees(NamedTuple):
    """Shift degrees of N images, ``[N] float32`` each in [0, 2], on the CPU."""

    semantic: Tensor
    covariate: Tensor


class ShiftMeter:
    """Measures shift degrees to one ID set (IS-OOD, section 3).

    ``D_sem(x)`` is the k-th smallest cosine distance of the semantic part of x to those of all ID
    images, ``D_cov`` that of the covariate part, independently. The paper defines k = 1 and uses
    10 against noise.

    Exact, in float32, and chunked in queries and bank. Beside the queries and a few hundred MB,
    memory is that of the parts of the ID set on the device that searches: ``4 M (s + c)`` bytes, of
    which ``resident=False`` keeps one part at a time, for a single call with many images. 1.28
    million ID images at 256 + 256 take 2.6 or 1.3 GB.

    Several GPUs: queries do not know of each other, so give every process the whole ID set and
    ``features[rank::world_size]``, and put the results back at the same rows.

    Args:
        decomposition: the split.
        id_features: CLIP features of the ID images, ``[M, l]``.
        k: neighbour; the decomposition's by default.
        device: where to search; by default where ``id_features`` are.
        resident: keep both parts of the ID set; else each is made anew in every call, and
            ``id_features`` are kept.

    Raises:
        UserError: k below 1, or more than the ID images.
        ValueError: features that are not finite or have a part of length 0.
    """

    def __init__(
        self,
        decomposition: Decomposition,
        id_features: Tensor,
        k: int | None = None,
        device: torch.device | str | None = None,
        resident: bool = True,
    ) -> None:
        self.decomposition = decomposition
        self.k = decomposition.k if k is None else k
        _check_k(self.k, len(id_features), "the ID set has")
        search = partial(self._search, id_features, device)
        if resident:
            axes = AXES[:1] if decomposition.halves_are_equal else AXES
            kept = {axis: search(axis) for axis in axes}
            self._search_of: Callable[[Axis], NeighbourSearch] = kept.__getitem__
        else:
            self._search_of = search

    def __call__(
        self, features: Tensor, *, in_bank: bool = False, progress: Progress | None = None
    ) -> ShiftDegrees:
        """Degrees of images.

        Args:
            features: their CLIP features, ``[N, l]``.
            in_bank: these images are among the ID images, so that each one's match with itself
                does not count.
            progress: receives the share done, in [0, 1].
        """
        report = progress or (lambda share: None)

        def degrees(axis: Axis, report: Progress) -> Tensor:
            queries = self.decomposition.part(features, axis)
            return self._search_of(axis).distance(queries, in_bank=in_bank, progress=report)

        if self.decomposition.halves_are_equal:
            both = degrees("semantic", report)
            return ShiftDegrees(both, both)
        semantic = degrees("semantic", lambda share: report(share / 2))
        return ShiftDegrees(semantic, degrees("covariate", lambda share: report((1 + share) / 2)))

    def _search(
        self, id_features: Tensor, device: torch.device | str | None, axis: Axis
    ) -> NeighbourSearch:
        return NeighbourSearch(self.decomposition.part(id_features, axis), self.k, device)


class NeighbourSearch:
    """Cosine distance to the k-th nearest row of a bank, exact in float32.

    Large banks are searched by :class:`ood_lab.shift.candidates.CandidateSearch`, in bfloat16
    where the processor multiplies it natively (measured once) and in float16 on a GPU; queries
    without certificate once more in float32, and what is still uncertain (hundreds of equal rows),
    like small banks, by plain products. Where half precision certifies fewer than half of the
    queries it is given up: very dense banks, in which the k-th neighbour is one of hundreds within
    0.01 of each other.

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
        _check_k(k, len(bank), "the ID set has")
        _check_unit(bank, "bank")
        self.k = k
        self.bank = bank if device is None else bank.to(device)
        self._dtypes: list[torch.dtype] = []
        self._searches: dict[torch.dtype, CandidateSearch] = {}
        if CandidateSearch.fits(len(bank), k + 1):
            first = dtype or fastest_dtype(self.bank.device)
            self._dtypes = list(dict.fromkeys([first, torch.float32]))

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
            _check_k(n, len(self.bank), "without itself, each of them counting one of")
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


def kth_distance(
    queries: Tensor,
    bank: Tensor,
    k: int = 10,
    *,
    in_bank: bool = False,
    device: torch.device | str | None = None,
    progress: Progress | None = None,
) -> Tensor:
    """Cosine distance of each query to its k-th nearest bank row; see :class:`NeighbourSearch`."""
    search = NeighbourSearch(bank, k, device)
    return search.distance(queries, in_bank=in_bank, progress=progress)


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
        plain = _seconds(lambda: a @ b)
    half = (a.bfloat16(), b.bfloat16())
    return plain / _seconds(lambda: half[0] @ half[1])


def _seconds(run: Callable[[], Tensor]) -> float:
    """Shortest of three runs after a first one."""
    run()
    times = []
    for _ in range(3):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def _check_k(k: int, rows: int, what: str) -> None:
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
