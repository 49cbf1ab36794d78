"""k-th nearest neighbours by a rough search with a certificate, then an exact second look."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

#: Consecutive bank rows of which only the largest product is kept.
GROUP = 16
#: Groups of which the largest maximum is looked at first.
_FAN = 16
#: Bank rows between two merges of the best groups.
_CHUNK = 262_144
#: Groups whose float32 rows are gathered at a time: 33 MB at 256 dimensions.
_GATHERED = 2048


class Blocks(NamedTuple):
    """Queries and bank rows that are multiplied at a time."""

    queries: int
    rows: int


def blocks_for(device: torch.device) -> Blocks:
    """16 MB of bfloat16 products on a CPU, 512 MB on a GPU, whose kernels start slowly."""
    return Blocks(2048, 4096) if device.type == "cpu" else Blocks(16_384, 16_384)


class CandidateSearch:
    r"""The n-th largest product with a bank: candidates in half precision, then float32.

    With the bank's mean :math:`\mu` (which only shifts all products of a query) and rounded
    vectors :math:`\tilde q, \tilde b`, the first pass computes
    :math:`\tilde s = \tilde q \cdot \tilde b \approx q \cdot (b - \mu)` and keeps the largest of
    every 16 rows. Its error is bounded:

    .. math::
        |\tilde s - s| \le u |\tilde s| + e_q, \qquad
        e_q = |q - \tilde q| \max|b - \mu| + |\tilde q| \max|b - \mu - \tilde b|
              + (d + 8) 2^{-21} |\tilde q| \max|\tilde b| + \epsilon

    (Cauchy-Schwarz on the measured rounding of the inputs, the float32 sums, the rounding u of the
    result). So the n-th largest true product is at least the lower bound of the n-th largest
    maximum, and a group whose upper bound is below that cannot matter. All other groups are
    looked at again in float32. A query is **certified** if these are fewer than ``limit``, the
    number of best groups kept; its result then has missed nothing. An uncertified query (many near
    ties) gets no result here.

    The bank stays as it is: rough copies live for 262,144 rows at a time.

    Args:
        bank: ``[M, d] float32``; see :meth:`fits`.
        n: the largest n that will be asked for.
        dtype: of the first pass; float32 is allowed, and certifies nearly always.
    """

    def __init__(self, bank: Tensor, n: int, dtype: torch.dtype) -> None:
        self.bank = bank.contiguous()
        self.dtype = dtype
        self.groups = len(bank) // GROUP
        # Past one group in 512 a second look at them takes longer than float32 products.
        self.limit = max(_limit(n), min(self.groups // 512, 256))
        self.blocks = blocks_for(bank.device)
        sums = [rows.sum(dim=0) for rows in bank.split(self.blocks.rows)]
        self.mean = torch.stack(sums).sum(dim=0) / len(bank)
        norms = [self._norms(rows) for rows in bank.split(self.blocks.rows)]
        # A little more than measured: norms are rounded too.
        self.radius, self.error, self.size = (1.0001 * torch.stack(norms).amax(0)).tolist()

    @staticmethod
    def fits(rows: int, n: int) -> bool:
        """Whether a bank of so many rows has enough groups to choose from."""
        return rows >= _limit(n) * GROUP * _FAN

    def nth_product(self, queries: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """The n-th largest product of each query with the bank.

        Args:
            queries: ``[Q, d] float32``, on the bank's device.
            n: up to the ``n`` of the constructor.

        Returns:
            Products ``[Q] float32`` and which of them are certified, ``[Q] bool``; the others are
            to be ignored.
        """
        rough = queries.to(self.dtype)
        values, groups = self._best_groups(rough)
        slack = self._slack(queries, rough)[:, None]
        half_unit = torch.finfo(self.dtype).eps / 2
        rounding = half_unit * values.abs() + slack
        floor = (values - rounding)[:, n - 1 : n]
        needed = values + rounding >= floor
        certified = ~needed[:, -1]
        needed &= certified[:, None]
        parts = [
            self._look_again(q, n, g, m)
            for q, g, m in zip(
                *(t.split(self.blocks.queries) for t in (queries, groups, needed)), strict=True
            )
        ]
        return torch.cat(parts), certified

    def _norms(self, rows: Tensor) -> Tensor:
        """Largest ``|b - mu|``, rounding error and rounded length of some rows, ``[3]``."""
        centred = rows - self.mean
        rough = centred.to(self.dtype).float()
        parts = (centred, centred - rough, rough)
        return torch.stack([torch.linalg.vector_norm(part, dim=1).amax() for part in parts])

    def _slack(self, queries: Tensor, rough: Tensor) -> Tensor:
        """The bound ``e_q`` of every query, ``[Q]``."""
        rounded = rough.float()
        lost = 1.0001 * torch.linalg.vector_norm(queries - rounded, dim=1)
        length = 1.0001 * torch.linalg.vector_norm(rounded, dim=1)
        sums = (queries.shape[1] + 8) * 2.0**-21
        # Results below the smallest normal number may be flushed to 0.
        tiny = torch.finfo(self.dtype).smallest_normal + 1e-6
        return lost * self.radius + length * (self.error + sums * self.size) + tiny

    def _best_groups(self, rough: Tensor) -> tuple[Tensor, Tensor]:
        """The ``limit`` largest group maxima, falling, and their groups, ``[Q, limit]`` each."""
        shape, device = (len(rough), self.limit), rough.device
        values = torch.full(shape, -torch.inf, device=device)
        groups = torch.zeros(shape, dtype=torch.int64, device=device)
        step = _CHUNK // GROUP
        for first in range(0, self.groups, step):
            bank = self._rough_blocks(first, min(first + step, self.groups))
            for start in range(0, len(rough), self.blocks.queries):
                rows = slice(start, start + self.blocks.queries)
                best, place = _largest(_group_maxima(rough[rows], bank), self.limit)
                values[rows], order = torch.cat([values[rows], best.float()], 1).topk(self.limit)
                groups[rows] = torch.cat([groups[rows], place + first], 1).gather(1, order)
        return values, groups

    def _rough_blocks(self, first: int, last: int) -> list[Tensor]:
        """Rounded rows of groups, in blocks ordered so that a group's rows lie far apart.

        The maximum over a strided axis is several times faster than over the last one, while the
        groups themselves stay consecutive rows, which are fast to gather.
        """
        blocks = []
        for rows in self.bank[first * GROUP : last * GROUP].split(self.blocks.rows):
            centred = (rows - self.mean).to(self.dtype)
            apart = centred.view(-1, GROUP, rows.shape[1]).transpose(0, 1)
            blocks.append(apart.reshape(rows.shape))
        return blocks

    def _look_again(self, queries: Tensor, n: int, groups: Tensor, needed: Tensor) -> Tensor:
        """n-th largest float32 product among the needed groups and the rows after the last one."""
        products = queries.new_full((*groups.shape, GROUP), -torch.inf)
        whole = self.bank[: self.groups * GROUP].view(self.groups, -1)
        for pairs in needed.nonzero().split(_GATHERED):
            query, slot = pairs.unbind(1)
            rows = whole.index_select(0, groups[query, slot]).view(
                len(pairs), GROUP, queries.shape[1]
            )
            products[query, slot] = torch.einsum("pd,prd->pr", queries[query], rows)
        rest = queries @ self.bank[self.groups * GROUP :].T
        return torch.cat([products.flatten(1), rest], dim=1).topk(n).values[:, -1]


def _limit(n: int) -> int:
    return max(64, 4 * n)


def _group_maxima(queries: Tensor, blocks: list[Tensor]) -> Tensor:
    """Largest product in each group, ``[Q, groups]``, filled up with -inf to a multiple of 16."""
    groups = sum(len(block) for block in blocks) // GROUP
    maxima = queries.new_full((len(queries), -(-groups // _FAN) * _FAN), -torch.inf)
    start = 0
    for block in blocks:
        products = (queries @ block.T).view(len(queries), GROUP, -1)
        maxima[:, start : start + products.shape[2]] = products.amax(dim=1)
        start += products.shape[2]
    return maxima


def _largest(maxima: Tensor, limit: int) -> tuple[Tensor, Tensor]:
    """The ``limit`` largest of each row and their columns, by way of the maxima of 16 columns.

    The ``limit`` largest lie in the ``limit`` sixteens with the largest maxima; ``topk`` over all
    columns would take a large part of the time of the products.
    """
    width = maxima.shape[1] // _FAN
    first = maxima.view(-1, _FAN, width).amax(dim=1).topk(min(limit, width)).indices
    steps = width * torch.arange(_FAN, device=maxima.device)
    columns = (first[:, None, :] + steps[:, None]).flatten(1)
    values, order = maxima.gather(1, columns).topk(min(limit, columns.shape[1]))
    return values, columns.gather(1, order)
