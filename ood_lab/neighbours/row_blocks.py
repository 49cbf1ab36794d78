"""The rows that are searched, in memory or in a mapped file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class Blocks(NamedTuple):
    """Queries and bank rows that are multiplied at a time."""

    queries: int
    rows: int


#: 16 MiB of float32 products on a CPU, 1 GiB elsewhere: kernels of a GPU start slowly.
_BLOCKS, _BLOCKS_ELSEWHERE = {"cpu": Blocks(1024, 4096)}, Blocks(16_384, 16_384)


def product_blocks(device: torch.device) -> Blocks:
    """Sizes for a device."""
    return _BLOCKS.get(device.type, _BLOCKS_ELSEWHERE)


@dataclass(frozen=True)
class Rows:
    r"""Rows :math:`b_i = c_i x_i` of a bank and what is added to their products, :math:`a_i`.

    The search looks for large :math:`q \cdot b_i + a_i`. ``features`` are read in blocks and never
    copied as a whole, so they may be a mapped file.

    Attributes:
        features: ``x``, ``[M, d] float32``.
        scale: ``c``, ``[M] float32``; None = 1.
        offset: ``a``, ``[M] float32``; None = 0.
    """

    features: Tensor
    scale: Tensor | None = None
    offset: Tensor | None = None

    def __len__(self) -> int:
        return len(self.features)

    @property
    def device(self) -> torch.device:
        """Where the rows lie."""
        return self.features.device

    def to(self, place: torch.device | str | Tensor) -> Rows:
        """The same rows on another device, or of device and type of a tensor."""
        return self._each(lambda part: part.to(place))

    def split(self, size: int) -> Iterator[Rows]:
        """Blocks of so many rows."""
        for start in range(0, len(self), size):
            yield self[slice(start, start + size)]

    def blocks_for(self, queries: Tensor) -> Iterator[Rows]:
        """Blocks whose products with a block of queries are taken at a time, with these."""
        return (rows.to(queries) for rows in self.split(product_blocks(queries.device).rows))

    def __getitem__(self, rows: slice | Tensor) -> Rows:
        return self._each(lambda part: part[rows])

    def _each(self, change: Callable[[Tensor], Tensor]) -> Rows:
        rest = (part if part is None else change(part) for part in (self.scale, self.offset))
        return Rows(change(self.features), *rest)

    def scaled(self) -> Tensor:
        """``b``, ``[M, d] float32``; the features themselves where they are."""
        return self.features if self.scale is None else self.features * self.scale[:, None]

    def products(self, queries: Tensor, out: Tensor) -> None:
        """Writes ``q . b_i + a_i`` of all pairs, ``[Q, d] -> [Q, M] float32``."""
        if self.offset is None:
            torch.mm(queries, self.scaled().T, out=out)
        else:
            torch.addmm(self.offset, queries, self.scaled().T, out=out)
