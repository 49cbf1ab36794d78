"""Rows that are the same to the bit: an image that is read, or evaluated, more than once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import torch
from torch import Tensor

from ood_lab.features.bank import Banks
from ood_lab.schema.arrays import Ints

#: Values of a row that are looked at, at equal steps; rows that are hashed at once.
_VALUES, _ROWS = 4096, 4096
#: Share of a set that one row may be without being taken for a constant, such as all zeros.
_CONSTANT = 0.05


def row_keys(rows: Tensor) -> Ints:
    """A 64-bit hash of each row of ``[N, ...]``: equal rows have equal keys."""
    flat = rows.detach().reshape(len(rows), -1)
    flat = flat[:, :: max(1, -(-flat.shape[1] // _VALUES))]
    generator = torch.Generator().manual_seed(0)
    ends = torch.iinfo(torch.int64)
    factors = torch.randint(ends.min, ends.max, (flat.shape[1],), generator=generator) | 1
    keys = [_hashed(part, factors.to(part.device)) for part in flat.split(_ROWS)]
    return torch.cat(keys).cpu().numpy() if keys else np.empty(0, np.int64)


def _hashed(rows: Tensor, factors: Tensor) -> Tensor:
    # Integers wrap around, and their sum does not depend on its order, as that of floats does.
    bits = (rows.float() + 0.0).contiguous().view(torch.int32).long() * 0x5851F42D4C957F2D
    return ((bits ^ (bits >> 31)) * factors).sum(1)


def shared_rows(id_sets: Sequence[str], sets: Banks) -> Iterator[str]:
    """What to say of sets that have rows in common, two of ID or one of ID and an OOD set.

    Rows that a set has many of say nothing: a network may give all dark images the same features.

    Args:
        id_sets: names of those with ID images.
        sets: all banks by name.
    """
    keys = {
        name: _telling(row_keys(bank.features if bank.features.shape[1] else bank.logits))
        for name, bank in sets.items()
    }
    order = list(sets)
    for first, second in product(order, order):
        if order.index(first) >= order.index(second) or first not in id_sets:
            continue
        rows = [row for row, key in keys[second].items() if key in {*keys[first].values()}]
        if rows:
            yield (
                f"{len(rows):,} of {len(sets[second]):,} images of {second} (row {rows[0]} is the "
                f"first) have exactly the features of images of {first}: if they are the same "
                "images, remove them from one of the two sets"
            )


def _telling(keys: Ints) -> dict[int, int]:
    """Keys by row, of rows that are not constants."""
    _, place, counts = np.unique(keys, return_inverse=True, return_counts=True)
    few = counts[place] <= max(3, _CONSTANT * len(keys))
    return dict(zip(np.flatnonzero(few).tolist(), keys[few].tolist(), strict=True))
