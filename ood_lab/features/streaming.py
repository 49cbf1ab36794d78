"""Images that pass through the network without their features being kept.

The set is cut into parts of whole batches, each process takes parts of its own, and what a batch
gives goes to a :class:`Sink` in blocks of rows. Nothing is exchanged between the processes, and no
batch or block depends on how many there are: neither do the numbers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from ood_lab.common.cpu_cores import fitting_processes, loading_processes
from ood_lab.common.english import counted
from ood_lab.common.errors import UserError
from ood_lab.features.bank import FeatureBank, weight_and_bias
from ood_lab.features.bank_writer import require_finite
from ood_lab.features.cached_extraction import CHUNKS
from ood_lab.features.extraction_hooks import BankColumn
from ood_lab.features.extraction_pass import Images, check_takes_all, collate, predict
from ood_lab.features.lightning_extractor import Extractor
from ood_lab.features.moments import BLOCK_BYTES
from ood_lab.models.backbone import Backbone

log = logging.getLogger(__name__)

#: Number of a batch without images, of a process without parts: Lightning refuses it none.
_NONE = -1
#: Of the rows of a block, with all columns.
MOST_BYTES = 64 * 2**20


@dataclass(frozen=True)
class DatasetParts:
    """The images of a set, cut into parts of whole batches, so that each can be made separately.

    Attributes:
        images: in the set.
        batch_size: images of a batch.
        size: images of a part, about.
    """

    images: int
    batch_size: int
    size: int

    @property
    def whole(self) -> int:
        """Images of every part but the last."""
        return max(1, self.size // self.batch_size) * self.batch_size

    @property
    def numbers(self) -> range:
        """Numbers of the parts."""
        return range(-(-self.images // self.whole))

    def rows(self, part: int) -> range:
        """Rows of the set that a part holds."""
        return range(part * self.whole, min((part + 1) * self.whole, self.images))

    def batches(self, part: int) -> range:
        """Numbers of the batches of a part."""
        rows = self.rows(part)
        return range(rows.start // self.batch_size, -(-rows.stop // self.batch_size))

    def rows_of_batch(self, batch: int) -> range:
        """Rows of the set that a batch holds."""
        start = batch * self.batch_size
        return range(start, min(start + self.batch_size, self.images))

    def ended_by(self, batch: int) -> int | None:
        """The part that a batch is the last of."""
        part = batch * self.batch_size // self.whole
        return part if batch + 1 == self.batches(part).stop else None


class Sink(Protocol):
    """What becomes of the images: made in every process, of the images of its parts."""

    def take(self, block: FeatureBank) -> None:
        """Some rows of a part, in order."""

    def close(self, part: int, errors: dict[int, str]) -> None:
        """All rows of a part have been taken, but for those that cannot be read, and why."""


class _Batches(Dataset[dict[str, Any]]):
    """Batches by number.

    Lightning notes every row that a loader of rows has handed out, as long as the pass lasts.

    Args:
        images: the set.
        parts: of it.
        lenient: an unreadable image is reported and does not end the pass.
    """

    def __init__(self, images: Images, parts: DatasetParts, lenient: bool) -> None:
        self._images, self._parts, self._lenient = images, parts, lenient

    def __len__(self) -> int:
        return self._parts.batches(self._parts.numbers[-1]).stop

    def __getitem__(self, batch: int) -> dict[str, Any]:
        samples, errors = [], dict[int, str]()
        for row in self._parts.rows_of_batch(batch) if batch != _NONE else ():
            try:
                samples.append(self._images[row])
            except UserError as error:
                if not self._lenient:
                    raise
                errors[row] = str(error)
        return {**(collate(samples) if samples else {}), "batch": batch, "errors": errors}


class _OwnParts(DistributedSampler[int]):
    """The batches of the parts of a process; Lightning leaves a sampler of this kind unchanged."""

    def __init__(self, trainer: Trainer, parts: DatasetParts, numbers: Sequence[int]) -> None:
        self._trainer, self._parts, self._numbers = trainer, parts, list(numbers)

    @property
    def _own(self) -> list[int]:
        # Asked for in the process itself: Lightning may start it later.
        return self._numbers[self._trainer.global_rank :: self._trainer.world_size]

    def __iter__(self) -> Iterator[int]:
        for part in self._own:
            yield from self._parts.batches(part)
        if not self._own:
            yield _NONE

    def __len__(self) -> int:
        return max(1, sum(len(self._parts.batches(part)) for part in self._own))

    def set_epoch(self, epoch: int) -> None:
        """Nothing is shuffled."""


class _PassExtractor(Extractor):
    """As its base class, with batches of which no image could be read."""

    def progress(self, share: float) -> str:
        """See the base class; nothing of them is kept."""
        return f"'{self.description}': {share:.0%} of the images passed"

    def predict_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """See the base class; nothing of a batch without images."""
        return super().predict_step(batch, batch_idx) if "image" in batch else {}


class _Blocks(Callback):
    """Puts the rows of batches together to blocks, and hands them on."""

    def __init__(
        self,
        images: Images,
        parts: DatasetParts,
        backbone: Backbone,
        make: Callable[[Trainer], Sink],
    ) -> None:
        self._images, self._parts, self._make = images, parts, make
        self._head = weight_and_bias(backbone.head)
        self._sink: Sink | None = None
        self._waiting: list[FeatureBank] = []
        self._errors: dict[int, str] = {}

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Makes the sink."""
        self._sink = self._make(trainer)

    def on_predict_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, *_: Any
    ) -> None:
        """Takes a batch, and ends the part that it ends.

        Raises:
            UserError: features or logits are not finite.
        """
        assert self._sink is not None
        if outputs:
            self._waiting.append(self._bank(outputs))
        self._errors |= batch["errors"]
        part = self._parts.ended_by(batch["batch"]) if batch["batch"] != _NONE else None
        rows = sum(map(len, self._waiting))
        if rows and (part is not None or rows >= _block_rows(self._waiting[0])):
            self._hand_on(self._sink, rows if part is not None else None)
        if part is not None:
            self._sink.close(part, self._errors)
            self._errors = {}

    def _bank(self, outputs: dict[str, Any]) -> FeatureBank:
        named = ("features", "logits", "labels", "index")
        rows = {name: outputs[name].cpu() for name in named}
        for name in ("logits", "features"):
            require_finite(name, rows[name], rows["index"], self._images)
        columns = {key: values.cpu() for key, values in outputs["columns"].items()}
        weight, bias = self._head
        return FeatureBank(**rows, head_weight=weight, head_bias=bias, columns=columns)

    def _hand_on(self, sink: Sink, all_rows: int | None) -> None:
        """Whole blocks, and with ``all_rows`` the rest too."""
        bank = _joined(self._waiting)
        step, done = _block_rows(bank), 0
        while len(bank) - done >= step or done < (all_rows or 0):
            sink.take(bank.rows(torch.arange(done, min(done + step, len(bank)))))
            done += step
        left = torch.arange(min(done, len(bank)), len(bank))
        self._waiting = [bank.rows(left)] if len(left) else []


def _block_rows(bank: FeatureBank) -> int:
    """Rows of a block: of as many the moments of a whole bank are added up."""
    tensors = (bank.features, bank.logits, *bank.columns.values())
    each = sum(values[:1].nbytes for values in tensors)
    width = max(1, bank.features.shape[1])
    return max(1, min(BLOCK_BYTES // (8 * width), MOST_BYTES // max(1, each)))


def _joined(banks: list[FeatureBank]) -> FeatureBank:
    if len(banks) == 1:
        return banks[0]
    first = banks[0]

    def cat(of: Callable[[FeatureBank], Tensor]) -> Tensor:
        return torch.cat([of(bank) for bank in banks])

    return FeatureBank(
        cat(lambda b: b.features),
        cat(lambda b: b.logits),
        cat(lambda b: b.labels),
        cat(lambda b: b.index),
        first.head_weight,
        first.head_bias,
        {key: cat(lambda b, key=key: b.columns[key]) for key in first.columns},  # type: ignore[misc]
    )


def pass_through(
    trainer: Trainer,
    backbone: Backbone,
    images: Images,
    columns: Sequence[BankColumn],
    parts: DatasetParts,
    numbers: Sequence[int],
    sink: Callable[[Trainer], Sink],
    root: Path,
    *,
    num_workers: int = 0,
    lenient: bool = False,
) -> None:
    """Passes the images of some parts through the network, on all processes.

    Args:
        trainer: its processes share the parts out.
        backbone: left as it was.
        images: with their transform set.
        columns: what detectors want of the pass; equal keys are computed once.
        parts: of the images.
        numbers: of the parts to make; the same on every process.
        sink: makes what takes the rows, in the process that computes them.
        root: folder of all banks; the fastest chunk is kept next to it for the next pass.
        num_workers: loader processes, for each process.
        lenient: an unreadable image is reported to the sink and does not end the pass.

    Raises:
        UserError: features are not finite, an image cannot be read, a column cannot be served, or
            the trainer would leave images out.
    """
    check_takes_all(trainer, images.name)
    wanted = list({column.key: column for column in columns}.values())
    extractor = _PassExtractor(
        *(backbone, wanted, True, parts.batch_size, images.name, trainer.num_devices),
        choices=root / CHUNKS,
    )
    workers = loading_processes(trainer, num_workers, len(numbers))
    size = min(parts.batch_size, len(images))
    loader = DataLoader(
        _Batches(images, parts, lenient),
        batch_size=None,
        sampler=_OwnParts(trainer, parts, numbers),
        num_workers=fitting_processes(workers, size, lambda: images[0], trainer.num_devices),
        pin_memory=trainer.strategy.root_device.type == "cuda",
    )
    start = time.perf_counter()
    predict(trainer, extractor, loader, _Blocks(images, parts, backbone, sink))
    if torch.distributed.is_initialized():  # where processes stay: others may still write
        trainer.strategy.barrier("images passed")
    if trainer.global_rank == 0:
        extractor.keep_chunk()
        n = sum(len(parts.rows(part)) for part in numbers)
        log.info(
            "'%s': %s passed in %.1f s%s",
            images.name,
            counted(n, "image"),
            time.perf_counter() - start,
            extractor.told,
        )
