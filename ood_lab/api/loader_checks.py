"""Whether a loader gives each image once, and the same image at every read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence, Sized
from itertools import combinations
from typing import Any

import numpy as np
import torch
import xxhash
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from ood_lab.common.errors import UserError
from ood_lab.features.bank import Banks
from ood_lab.schema.arrays import Ints

#: Values of a row that are looked at, at equal steps; rows that are hashed at once.
_VALUES, _ROWS = 4096, 4096
#: Share of a set that one row may be without being taken for a constant, such as all zeros.
_CONSTANT = 0.05


def row_keys(rows: Tensor) -> Ints:
    """A 64-bit hash of each row of ``[N, ...]``: equal rows have equal keys."""
    flat = rows.detach().flatten(1)
    flat = flat[:, :: max(1, -(-flat.shape[1] // _VALUES))]
    # Of -0.0 and 0.0 the bits differ until 0.0 is added.
    parts = ((part.float() + 0.0).cpu().contiguous().numpy() for part in flat.split(_ROWS))
    keys = [xxhash.xxh3_64_intdigest(row) for part in parts for row in part]
    return np.array(keys, np.uint64).astype(np.int64)


def shared_rows(id_sets: Sequence[str], sets: Banks) -> Iterator[str]:
    """What to say of sets that have rows in common, two of ID or one of ID and an OOD set.

    Rows that a set has many of say nothing: a network may give all dark images the same features.

    Args:
        id_sets: names of those with ID images.
        sets: all banks by name.
    """
    keys = {
        name: _telling(row_keys(bank.features if bank.width else bank.logits))
        for name, bank in sets.items()
    }
    for first, second in combinations(sets, 2):
        rows = [row for row, key in keys[second].items() if key in {*keys[first].values()}]
        if rows and first in id_sets:
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


log = logging.getLogger(__name__)

#: Images that are read twice.
_TRIED = 8


class EachImageOnce:
    """Looks at a loader before the pass, at its images during it, and counts them afterwards.

    Args:
        images: whatever was given; of anything but a DataLoader or a dataset only the rows are
            looked at.
        image_of: the images of an item.

    Raises:
        UserError: its sampler samples with replacement.
    """

    def __init__(self, images: Any, image_of: Callable[[Any], Any]) -> None:
        self._loader = images if isinstance(images, DataLoader) else None
        data = self._loader.dataset if self._loader is not None else images
        self._dataset = data if isinstance(data, Dataset) else None
        self._keys = [np.empty(0, np.int64)]
        self._explained = self._loader is not None and self._omissions_explained(self._loader)
        self._check_repeatable(image_of)

    @property
    def _streams(self) -> bool:
        return isinstance(self._dataset, IterableDataset)

    def _omissions_explained(self, loader: DataLoader[Any]) -> bool:
        """Whether images that the loader omits are omitted on purpose, or told here."""
        batches = loader.batch_sampler if isinstance(loader.batch_sampler, BatchSampler) else loader
        sampler = batches.sampler
        if isinstance(sampler, RandomSampler | WeightedRandomSampler) and sampler.replacement:
            raise UserError(
                f"the {type(sampler).__name__} of the loader samples with replacement: some "
                "images come several times and others never. Give a DataLoader without a sampler"
            )
        total = len(sampler) if isinstance(sampler, Sized) and not self._streams else None
        if batches.drop_last and (total is None or total % (batches.batch_size or 1)):
            log.warning("drop_last=True of the loader omits the last images: set drop_last=False")
            return True
        return isinstance(sampler, SubsetRandomSampler)

    def _check_repeatable(self, image_of: Callable[[Any], Any]) -> None:
        if self._dataset is None or self._streams or not isinstance(self._dataset, Sized):
            return
        rows = range(min(_TRIED, len(self._dataset)))
        loader = self._loader
        collate = None if loader is None or loader.batch_sampler is None else loader.collate_fn

        def read() -> list[Any]:
            assert self._dataset is not None
            items = [self._dataset[row] for row in rows]
            images = items if collate is None else [collate(items)]
            return [torch.as_tensor(image_of(item)).clone() for item in images]

        try:
            with isolate_rng(include_cuda=False):
                same = all(map(torch.equal, read(), read()))
        except Exception:  # the pass itself says what is wrong with an item
            return
        if not same:
            log.warning(
                "the same image is another one at every read: random transforms or a random "
                "collate_fn change what is evaluated. Give the transform of the evaluation"
            )

    def take(self, image: Tensor) -> None:
        """Notes the images of a batch, ``[B, ...]``."""
        self._keys.append(row_keys(image))

    def close(self) -> None:
        """Counts the images.

        Raises:
            UserError: there are more than the dataset has, or each came once per worker.
        """
        keys = np.concatenate(self._keys)
        n, (_, counts) = len(keys), np.unique(keys, return_counts=True)
        loader, total = self._loader, None
        if loader is not None and isinstance(self._dataset, Sized):
            total = len(self._dataset)
        workers = loader.num_workers if loader is not None and self._streams else 0
        copied = workers > 1 and bool((counts % workers == 0).all())
        if copied or (total is not None and n > total):
            raise UserError(
                f"{n:,} images came from the loader and {len(counts):,} of them differ: give a "
                "sampler with each image once. Where each worker reads the whole IterableDataset, "
                "set num_workers=0, or divide it in __iter__ by "
                "torch.utils.data.get_worker_info()"
            )
        if n > len(counts):
            log.warning(
                "%s of %s images repeat another image exactly. If the loader gives images several "
                "times, make it give each once: intervals take every row for another image",
                f"{n - len(counts):,}",
                f"{n:,}",
            )
        elif total and n < total and not self._explained:
            log.warning(
                "%s of %s images of the dataset came from the loader: give it no sampler that "
                "omits some, as a DistributedSampler does",
                f"{n:,}",
                f"{total:,}",
            )
