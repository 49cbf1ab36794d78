"""The n-th largest product: a rough pass finds candidates, an error bound certifies them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ood_lab.neighbours.rows import Rows

#: Products of which only the largest is compared with the threshold at first.
GROUP = 16
#: Random rows that the thresholds are estimated from, and the share of a small bank.
_SAMPLE, _SAMPLE_SHARE = 8192, 1 / 16
#: Candidates that rounding may add: from 1 row in 256 on, looking at them again takes as long as
#: float32 products of all rows.
_AMBIGUOUS_SHARE, _MOST_AMBIGUOUS = 1 / 256, 2048


class Blocks(NamedTuple):
    """Queries and bank rows that are multiplied at a time."""

    queries: int
    rows: int


def blocks_for(device: torch.device) -> Blocks:
    """16 MB of bfloat16 products on a CPU, 512 MB on a GPU, whose kernels start slowly."""
    return Blocks(2048, 4096) if device.type == "cpu" else Blocks(16_384, 16_384)


class Candidates(NamedTuple):
    """Rows whose rough product reached the threshold, ``[Q, limit]``; ``count`` of them a query."""

    products: Tensor
    rows: Tensor
    count: Tensor


class CandidateSearch:
    r"""The n-th largest product with a bank: candidates in half precision, then float32.

    With the bank's mean :math:`\mu` (which only shifts all products of a query) and rounded
    vectors :math:`\tilde q, \tilde b`, the rough pass computes
    :math:`\tilde s = \tilde q \cdot \tilde b + \tilde a \approx s = q \cdot (b - \mu) + a`. Its
    error is bounded:

    .. math::
        |\tilde s - s| \le u |\tilde s| + e_q, \qquad
        e_q = |q - \tilde q| \max|b - \mu| + |\tilde q| \max|b - \mu - \tilde b|
              + \max|a - \tilde a| + (d + 8) 2^{-21} (|\tilde q| \max|\tilde b| + \max|a|)
              + \epsilon

    (Cauchy-Schwarz on the measured rounding of the inputs, the float32 sums, the rounding u of the
    result). A random sample of the bank gives each query a threshold t below its n-th largest
    product. Rows with :math:`\tilde s \ge t` are the candidates; :math:`\tilde s_{(n)}`, the n-th
    largest of theirs, and the bounds around it settle most of them: what lies surely above is
    counted, what lies surely below is left out, and only those in between are multiplied again in
    float32. A query is **certified** if at least n candidates were found and
    :math:`t + u|t| + e_q` is below the bound under :math:`\tilde s_{(n)}`: no other row can matter
    then. An uncertified query (many near ties) gets no result here.

    In float32 there is no error to bound: n candidates are a certificate, and the n-th largest of
    their products is the result.

    Args:
        bank: see :meth:`fits`.
        n: the largest n that will be asked for.
        dtype: of the rough pass: bfloat16, float16 or float32.
    """

    def __init__(self, bank: Rows, n: int, dtype: torch.dtype) -> None:
        self.bank = bank
        self.dtype = dtype
        self.blocks = blocks_for(bank.device)
        self.ambiguous = min(int(len(bank) * _AMBIGUOUS_SHARE), _MOST_AMBIGUOUS)
        self.limit = 2 * (_expected(len(bank), n) + self.ambiguous)
        self.mean = torch.zeros_like(bank.features[0])
        if dtype != torch.float32:
            sums = [rows.scaled().sum(dim=0) for rows in bank.split(self.blocks.rows)]
            self.mean = torch.stack(sums).sum(dim=0) / len(bank)
            norms = [self._norms(rows) for rows in bank.split(self.blocks.rows)]
            # A little more than measured: norms are rounded too.
            measured = 1.0001 * torch.stack(norms).amax(dim=0)
            self.radius, self.error, self.size, self.lift, self.lift_error = measured.tolist()
        chosen = torch.randperm(len(bank), generator=torch.Generator().manual_seed(0))
        self.sample = self._rough(bank[chosen[: _sampled(len(bank))].sort().values.to(bank.device)])

    @staticmethod
    def fits(rows: int, n: int) -> bool:
        """Whether so few rows of the bank are candidates that choosing them saves time."""
        return rows >= 16_384 and 8 * _expected(rows, n) <= rows

    def nth_product(self, queries: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """The n-th largest product of each query with the bank.

        Args:
            queries: ``[Q, d] float32``, on the bank's device.
            n: up to the ``n`` of the constructor.

        Returns:
            Products ``[Q] float32`` and which of them are certified, ``[Q] bool``; the others are
            to be ignored.
        """
        blocks = queries.split(self.blocks.queries)
        rough = [block.to(self.dtype) for block in blocks]
        slack = [self._slack(q, r) for q, r in zip(blocks, rough, strict=True)]
        thresholds = [self._threshold(r, s, n) for r, s in zip(rough, slack, strict=True)]
        found = [
            self._nth_of(q, n, c, t.float(), s)
            for q, c, t, s in zip(
                blocks, self._candidates(rough, thresholds), thresholds, slack, strict=True
            )
        ]
        products, certified = zip(*found, strict=True)
        return torch.cat(products), torch.cat(certified)

    @property
    def _unit(self) -> float:
        """Largest relative rounding of a result."""
        return 0.0 if self.dtype == torch.float32 else torch.finfo(self.dtype).eps / 2

    def _rough(self, rows: Rows) -> tuple[Tensor, Tensor | None]:
        """Rounded rows and offsets."""
        offset = None if rows.offset is None else rows.offset.to(self.dtype)
        if self.dtype == torch.float32:
            return rows.scaled(), offset
        return (rows.scaled() - self.mean).to(self.dtype), offset

    def _norms(self, rows: Rows) -> Tensor:
        """Largest ``|b - mu|``, its rounding error, rounded length, ``|a|`` and its error, [5]."""
        centred = rows.scaled() - self.mean
        rough = centred.to(self.dtype).float()
        parts = (centred, centred - rough, rough)
        lengths = [torch.linalg.vector_norm(part, dim=1).amax() for part in parts]
        offset = centred.new_zeros(1) if rows.offset is None else rows.offset
        lifts = (offset, offset - offset.to(self.dtype).float())
        return torch.stack(lengths + [part.abs().amax() for part in lifts])

    def _slack(self, queries: Tensor, rough: Tensor) -> Tensor:
        """The bound ``e_q`` of every query, ``[Q]``."""
        if self.dtype == torch.float32:
            return queries.new_zeros(len(queries))
        rounded = rough.float()
        lost = 1.0001 * torch.linalg.vector_norm(queries - rounded, dim=1)
        length = 1.0001 * torch.linalg.vector_norm(rounded, dim=1)
        sums = (queries.shape[1] + 8) * 2.0**-21
        # Results below the smallest normal number may be flushed to 0.
        tiny = torch.finfo(self.dtype).smallest_normal + 1e-6
        inputs = lost * self.radius + length * self.error + self.lift_error
        return inputs + sums * (length * self.size + self.lift) + tiny

    def _threshold(self, rough: Tensor, slack: Tensor, n: int) -> Tensor:
        """A lower bound of the n-th largest product, less its error, ``[Q]`` in the rough type.

        Infinite where it would leave too many candidates.
        """
        products = torch.nn.functional.linear(rough, *self.sample)
        rank = _sample_rank(len(self.bank), n)
        nth = products.topk(rank, dim=1).values[:, -1].float()
        # Twice the bound, the rounding of the threshold itself, and as much to spare.
        low = (nth - 4 * self._unit * nth.abs() - 2 * slack).to(self.dtype)
        most = rank + self.ambiguous * _sampled(len(self.bank)) / len(self.bank)
        crowded = (products >= low[:, None]).sum(dim=1) > max(most, rank + 1)
        return low.masked_fill(crowded, torch.inf)

    def _candidates(self, rough: list[Tensor], thresholds: list[Tensor]) -> Iterator[Candidates]:
        """The candidates of every block of queries; the bank is read once."""
        found = [self._none(len(block)) for block in rough]
        first = 0
        for rows in self.bank.split(self.blocks.rows):
            bank = self._rough(rows)
            for block, threshold, candidates in zip(rough, thresholds, found, strict=True):
                products = torch.nn.functional.linear(block, *bank)
                _add(candidates, _reaching(products, threshold), first)
            first += len(rows)
        return iter(found)

    def _none(self, queries: int) -> Candidates:
        shape, device = (queries, self.limit), self.bank.device
        return Candidates(
            torch.full(shape, -torch.inf, dtype=self.dtype, device=device),
            torch.zeros(shape, dtype=torch.int32, device=device),
            torch.zeros(queries, dtype=torch.int64, device=device),
        )

    def _nth_of(
        self, queries: Tensor, n: int, found: Candidates, threshold: Tensor, slack: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Result and certificate of a block of queries."""
        products = found.products.float()
        nth = nth_largest(products, n)
        certified = (found.count >= n) & (found.count <= self.limit)
        if self.dtype == torch.float32:
            return nth, certified
        low, high = (nth + sign * (self._unit * nth.abs() + slack) for sign in (-1, 1))
        certified &= threshold + self._unit * threshold.abs() + slack < low
        bound = self._unit * products.abs() + slack[:, None]
        above = products - bound > high[:, None]
        between = (products + bound >= low[:, None]) & ~above & certified[:, None]
        exact = self.bank.products_at(queries, between, found.rows)
        place = (n - above.sum(dim=1)).clamp(min=1)
        ordered = exact.sort(dim=1, descending=True).values
        return ordered.gather(1, place[:, None] - 1)[:, 0], certified


class _Reaching(NamedTuple):
    """Products that reach the threshold of their query, ``[P]`` each, ordered by query."""

    query: Tensor
    row: Tensor
    product: Tensor


def _reaching(products: Tensor, threshold: Tensor) -> _Reaching:
    """The entries of ``[Q, M]`` from the thresholds ``[Q]`` on."""
    groups = products.shape[1] // GROUP
    # Members of a group lie far apart: their maximum is several times faster than of neighbours.
    grouped = products[:, : groups * GROUP].view(-1, GROUP, groups)
    query, group = (grouped.amax(dim=1) >= threshold[:, None]).nonzero().unbind(1)
    members = grouped[query, :, group]
    pair, member = (members >= threshold[query, None]).nonzero().unbind(1)
    query, row = query[pair], member * groups + group[pair]
    rest, last = (products[:, groups * GROUP :] >= threshold[:, None]).nonzero().unbind(1)
    if len(rest):
        query, order = torch.cat([query, rest]).sort(stable=True)
        row = torch.cat([row, last + groups * GROUP])[order]
    return _Reaching(query, row, products[query, row])


def _add(candidates: Candidates, more: _Reaching, first: int) -> None:
    """Writes more candidates behind those of each query; what goes beyond the limit is counted."""
    new = torch.bincount(more.query, minlength=len(candidates.count))
    # Entries are ordered by query, so that these are places within a query.
    before = candidates.count - (new.cumsum(0) - new)
    place = torch.arange(len(more.query), device=new.device) + before[more.query]
    kept = place < candidates.rows.shape[1]
    at = (more.query[kept], place[kept])
    candidates.products[at] = more.product[kept]
    candidates.rows[at] = (more.row[kept] + first).int()
    candidates.count.add_(new)


def nth_largest(values: Tensor, n: int) -> Tensor:
    """The n-th largest of every row, ``[Q, W] -> [Q]``."""
    return values.kthvalue(values.shape[1] - n + 1, dim=1).values


def _sampled(rows: int) -> int:
    return min(_SAMPLE, int(rows * _SAMPLE_SHARE))


def _sample_rank(rows: int, n: int) -> int:
    """The rank in the sample that nearly always lies beyond the n-th of the bank."""
    mean = n * _sampled(rows) / rows
    return math.ceil(mean + 4 * math.sqrt(mean) + 4)


def _expected(rows: int, n: int) -> int:
    """Candidates that a threshold from the sample leaves."""
    return math.ceil(_sample_rank(rows, n) * rows / _sampled(rows))
