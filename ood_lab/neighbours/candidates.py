"""The n-th largest product: a rough pass finds candidates, an error bound certifies them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ood_lab.common.tensor_arithmetic import permutation
from ood_lab.neighbours.row_blocks import Blocks, Rows, product_blocks

#: Products of which only the largest is compared with the threshold at first.
GROUP = 16
#: Random rows that the thresholds are estimated from, and the share of a small bank.
_SAMPLE, _SAMPLE_SHARE = 8192, 1 / 16
#: Candidates that rounding may add; with more, looking at them again takes longer than half
#: precision saves.
_AMBIGUOUS_SHARE, _MOST_AMBIGUOUS = 1 / 128, 2048
#: Banks smaller than this are not worth a second look.
_FEWEST = 32_768
#: Numbers that are rounded at a time: 8 MB, memory that is used again from tile to tile.
_TILE = 2**21


def half_blocks(device: torch.device) -> Blocks:
    """As many bytes of half precision as :func:`product_blocks` has on a CPU, half on a GPU."""
    return Blocks(2048, 4096) if device.type == "cpu" else product_blocks(device)


class Candidates(NamedTuple):
    """Rows whose rough product reached the threshold, ``[Q, limit]``, ``counts`` of a query."""

    products: Tensor
    rows: Tensor
    counts: Tensor


class CandidateSearch:
    r"""The n-th largest product with a bank: candidates in half precision, then float32.

    With about the mean :math:`\mu` of the rows and the median of :math:`a` taken off (which only
    shifts all products of a query) and rounded
    vectors :math:`\tilde q, \tilde b`, the rough pass computes
    :math:`\tilde s = \tilde q \cdot \tilde b + \tilde a \approx s = q \cdot (b - \mu) + a`. Its
    error is bounded:

    .. math::
        |\tilde s - s| \le u |\tilde s| + e_q, \qquad
        e_q = |q - \tilde q| \max|b - \mu| + |\tilde q| \max|b - \mu - \tilde b|
              + \max|a - \tilde a| + u \max|a|
              + (d + 8) 2^{-21} (|\tilde q| \max|\tilde b| + \max|a|) + \epsilon

    (Cauchy-Schwarz on the measured rounding of the inputs, the float32 sums, the rounding u of the
    result). A random sample of the bank gives each query a threshold t below its n-th largest
    product. Rows with :math:`\tilde s \ge t` are the candidates; :math:`\tilde s_{(n)}`, the n-th
    largest of theirs, and the bounds around it settle most of them: what is surely above is
    counted, what is surely below is skipped, and only those in between are multiplied again in
    float32. A query is **certified** if at least n candidates were found and
    :math:`t + u|t| + e_q` is below the bound under :math:`\tilde s_{(n)}`: no other row can matter
    then. An uncertified query (many near ties) gets no result here.

    Args:
        bank: see :meth:`fits`.
        n: the largest n that will be asked for.
        dtype: of the rough pass, bfloat16 or float16.
    """

    def __init__(self, bank: Rows, n: int, dtype: torch.dtype) -> None:
        self.bank = bank
        self.dtype = dtype
        self.blocks = half_blocks(bank.device)
        self.ambiguous = min(int(len(bank) * _AMBIGUOUS_SHARE), _MOST_AMBIGUOUS)
        self.limit = int(1.5 * (_expected(len(bank), n) + self.ambiguous))
        chosen = permutation(len(bank), 0)
        sample = bank[chosen[: _sampled(len(bank))].sort().values.to(bank.device)]
        # Any point serves as the centre; the nearer to the mean, the smaller the bound.
        self.mean = sample.scaled().mean(dim=0)
        self.level = self.mean.new_zeros(()) if sample.offset is None else sample.offset.median()
        self.tile = max(1, _TILE // bank.features.shape[1])
        norms = [self._norms(rows) for rows in bank.split(self.tile)]
        # A little more than measured: norms are rounded too.
        measured = 1.0001 * torch.stack(norms).amax(dim=0)
        self.radius, self.error, self.lift, self.lift_error = measured.tolist()
        # Offsets that are all but equal shift all products of a query, as the mean does.
        self.lifted = self.lift > 1e-5
        if not self.lifted:
            self.lift, self.lift_error = 0.0, self.lift
        # Relative rounding of a result: once, and once more before an offset is added.
        self.unit = torch.finfo(dtype).eps / (1 if self.lifted else 2)
        self.sample = self._rough(sample)

    @staticmethod
    def fits(rows: int, n: int) -> bool:
        """Whether so few rows of the bank are candidates that choosing them saves time."""
        return rows >= _FEWEST and 16 * _expected(rows, n) <= rows

    def nth_product(self, queries: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """The n-th largest product of each query with the bank.

        Args:
            queries: ``[Q, d] float32``, on the bank's device.
            n: up to the ``n`` of the constructor.

        Returns:
            Products ``[Q] float32`` and which of them are certified, ``[Q] bool``; the others are
            to be ignored.
        """
        size = self.blocks.queries
        thresholds = torch.cat([self._threshold(block, n) for block in queries.split(size)])
        certified = thresholds.isfinite()
        products = queries.new_zeros(len(queries))
        if float(certified.float().mean()) < 0.5:  # the whole pass would serve a minority
            certified = torch.zeros_like(certified)
        else:
            kept, limits = queries[certified].split(size), thresholds[certified].split(size)
            blocks = zip(kept, limits, self._candidates(kept, limits), strict=True)
            values, sure = zip(*(self._nth_of(*block, n) for block in blocks), strict=True)
            products[certified] = torch.cat(values)
            certified[certified.clone()] = torch.cat(sure)
        return products, certified

    def _rough(self, rows: Rows) -> tuple[Tensor, Tensor | None]:
        """Rounded rows and offsets."""
        rough = torch.empty_like(rows.features, dtype=self.dtype)
        for tile, part in zip(rough.split(self.tile), rows.split(self.tile), strict=True):
            tile.copy_(part.scaled(self.mean))
        if rows.offset is None or not self.lifted:
            return rough, None
        return rough, (rows.offset - self.level).to(self.dtype)

    def _norms(self, rows: Rows) -> Tensor:
        """Largest ``|b - mu|``, its rounding error, ``|a|`` and its rounding error, ``[4]``."""
        centred = rows.scaled(self.mean)
        offset = centred.new_zeros(1) if rows.offset is None else rows.offset - self.level
        lengths = [
            torch.linalg.vector_norm(part, dim=1).amax()
            for part in (centred, centred - centred.to(self.dtype))
        ]
        lifts = (offset, offset - offset.to(self.dtype))
        return torch.stack(lengths + [part.abs().amax() for part in lifts])

    def _slack(self, queries: Tensor) -> Tensor:
        """The bound ``e_q`` of every query, ``[Q]``."""
        rounded = queries.to(self.dtype).float()
        lost = 1.0001 * torch.linalg.vector_norm(queries - rounded, dim=1)
        length = 1.0001 * torch.linalg.vector_norm(rounded, dim=1)
        sums = (queries.shape[1] + 8) * 2.0**-21
        # Results below the smallest normal number may be flushed to 0.
        tiny = torch.finfo(self.dtype).smallest_normal + 1e-6
        inputs = lost * self.radius + length * self.error + self.lift_error
        size = self.radius + self.error
        return inputs + sums * (length * size + self.lift) + self.unit * self.lift + tiny

    def _threshold(self, queries: Tensor, n: int) -> Tensor:
        """A lower bound of the n-th largest product, less its error, ``[Q]`` in the rough type.

        Infinite where it would leave too many candidates.
        """
        sample, offset = self.sample
        products = torch.nn.functional.linear(queries.to(self.dtype), sample, offset)
        rank, share = _sample_rank(len(self.bank), n), _sampled(len(self.bank)) / len(self.bank)
        nth = products.topk(rank, dim=1).values[:, -1].float()
        # Twice the bound, the rounding of the threshold itself, and as much to spare.
        low = (nth - 4 * self.unit * nth.abs() - 2 * self._slack(queries)).to(self.dtype)
        crowded = (products >= low[:, None]).sum(dim=1) > rank + max(1.0, self.ambiguous * share)
        return low.masked_fill(crowded, torch.inf)

    def _candidates(self, queries: Sequence[Tensor], limits: Sequence[Tensor]) -> list[Candidates]:
        """The candidates of every block of queries; the bank is read once."""
        rough = [block.to(self.dtype) for block in queries]
        parts = [self._none(len(block)) for block in queries]
        for place, rows in enumerate(self.bank.split(self.blocks.rows)):
            bank, offset = self._rough(rows)
            for block, threshold, candidates in zip(rough, limits, parts, strict=True):
                products = torch.nn.functional.linear(block, bank, offset)
                _add(candidates, _reaching(products, threshold), place * self.blocks.rows)
        return parts

    def _none(self, queries: int) -> Candidates:
        shape, device = (queries, self.limit), self.bank.device
        return Candidates(
            torch.full(shape, -torch.inf, dtype=self.dtype, device=device),
            torch.zeros(shape, dtype=torch.int32, device=device),
            torch.zeros(queries, dtype=torch.int64, device=device),
        )

    def _nth_of(
        self, queries: Tensor, threshold: Tensor, candidates: Candidates, n: int
    ) -> tuple[Tensor, Tensor]:
        """Result and certificate of a block of queries."""
        products, slack = candidates.products.float(), self._slack(queries)
        nth = products.kthvalue(self.limit - n + 1, dim=1).values
        low, high = (nth + sign * (self.unit * nth.abs() + slack) for sign in (-1, 1))
        missed = threshold.float() + self.unit * threshold.float().abs() + slack
        certified = (candidates.counts >= n) & (candidates.counts <= self.limit) & (missed < low)
        bound = self.unit * products.abs() + slack[:, None]
        above = products - bound > high[:, None]
        between = (products + bound >= low[:, None]) & ~above & certified[:, None]
        exact = self.bank.products_at(queries, between, candidates.rows)
        place = n - 1 - above.sum(dim=1, keepdim=True)
        ordered = exact.sort(dim=1, descending=True).values
        return ordered.gather(1, place.masked_fill(~certified[:, None], 0))[:, 0], certified


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
    new = torch.bincount(more.query, minlength=len(candidates.counts))
    # Entries are ordered by query, so that these are places within a query.
    before = candidates.counts - (new.cumsum(0) - new)
    place = torch.arange(len(more.query), device=new.device) + before[more.query]
    kept = place < candidates.rows.shape[1]
    at = (more.query[kept], place[kept])
    candidates.products[at] = more.product[kept]
    candidates.rows[at] = (more.row[kept] + first).int()
    candidates.counts.add_(new)


def _sampled(rows: int) -> int:
    return min(_SAMPLE, int(rows * _SAMPLE_SHARE))


def _sample_rank(rows: int, n: int) -> int:
    """The rank in the sample that is nearly always beyond the n-th of the bank."""
    mean = n * _sampled(rows) / rows
    return math.ceil(mean + 4 * math.sqrt(mean) + 4)


def _expected(rows: int, n: int) -> int:
    """Candidates that a threshold from the sample leaves."""
    return math.ceil(_sample_rank(rows, n) * rows / _sampled(rows))
