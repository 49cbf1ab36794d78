"""The one pass over images: batches of rows for whoever reads them, and nothing waits for a device.

The set is cut into parts of whole batches, each process takes parts of its own, and a
:class:`Consumer` takes the rows of a batch after those of the one before. The bank writer, sums and
scores are consumers. Nothing is exchanged between the processes.
"""

from __future__ import annotations

import logging
import time
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler, default_collate

from ood_lab.common.cpu_cores import fitting_processes, loading_processes
from ood_lab.common.english import counted
from ood_lab.common.errors import UserError, user_error_in
from ood_lab.common.tensor_file import Batch, Tensors
from ood_lab.features.bank import FeatureBank, weight_and_bias
from ood_lab.features.extraction_hooks import BankColumn
from ood_lab.features.lightning_extractor import Extractor, frozen
from ood_lab.features.moments import BLOCK_BYTES
from ood_lab.models.backbone import Backbone

log = logging.getLogger(__name__)

#: Number of a batch without images, of a process without parts: Lightning refuses it none.
_NONE = -1
#: Of the rows of a block, with all columns.
MOST_BYTES = 64 * 2**20
#: Rows that cannot be read, and why.
ReadErrors = dict[int, str]


class Images(Protocol):
    """What a pass needs of a dataset; samples hold ``image``, ``index`` and ``label``."""

    name: str
    identity: str
    transform: Any

    @property
    def groups(self) -> Tensor | None:
        """See :class:`~ood_lab.data.dataset.ImageDataset`."""

    def address(self, row: int) -> str:
        """Path of a row, for messages."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Batch: ...


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

    @classmethod
    def of_processes(cls, images: int, batch_size: int, processes: int) -> DatasetParts:
        """One part a process, with no more batches than its share of the images needs.

        Batches are equally large, so that a part has less than a batch more than the share.
        """
        share = -(-images // processes)
        batches = -(-share // batch_size)
        size = batch_size if processes == 1 else -(-share // batches)
        return cls(images, size, batches * size)

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


class Consumer(Protocol):
    """What becomes of the images: made in every process, for the images of its parts."""

    def take(self, rows: FeatureBank) -> None:
        """The rows of a batch, in order."""

    def close(self, part: int, errors: ReadErrors) -> None:
        """All rows of a part have been taken, but for those that cannot be read, and why."""

    def end(self, trainer: Trainer) -> None:
        """All parts of the process are closed."""


class BlockConsumer(ABC):
    """A consumer that takes blocks of rows, whose size depends on no batch and no process."""

    def __init__(self) -> None:
        self._waiting: list[FeatureBank] = []

    @abstractmethod
    def block(self, rows: FeatureBank) -> None:
        """Some rows of a part, in order."""

    @abstractmethod
    def closed(self, part: int, errors: ReadErrors) -> None:
        """See :meth:`Consumer.close`."""

    def take(self, rows: FeatureBank) -> None:
        """See :class:`Consumer`."""
        self._waiting.append(rows)
        if sum(map(len, self._waiting)) >= _block_rows(rows):
            self._hand_on(last=False)

    def close(self, part: int, errors: ReadErrors) -> None:
        """See :class:`Consumer`."""
        if self._waiting:
            self._hand_on(last=True)
        self.closed(part, errors)

    def end(self, trainer: Trainer) -> None:
        """See :class:`Consumer`; other processes may still write."""
        if torch.distributed.is_initialized():  # where processes stay
            trainer.strategy.barrier("images passed")

    def _hand_on(self, last: bool) -> None:
        """Whole blocks, and with ``last`` the rest too."""
        bank = _joined(self._waiting)
        step, done = _block_rows(bank), 0
        while len(bank) - done >= (1 if last else step):
            self.block(bank.rows(torch.arange(done, min(done + step, len(bank)))))
            done += step
        self._waiting = [bank.rows(torch.arange(done, len(bank)))] if done < len(bank) else []


def _block_rows(bank: FeatureBank) -> int:
    """Rows of a block: of as many the moments of a whole bank are added up."""
    tensors = (bank.features, bank.logits, *bank.columns.values())
    row_bytes = sum(values[:1].nbytes for values in tensors)
    width = max(1, bank.width)
    return max(1, min(BLOCK_BYTES // (8 * width), MOST_BYTES // max(1, row_bytes)))


def _joined(banks: list[FeatureBank]) -> FeatureBank:
    if len(banks) == 1:
        return banks[0]
    rows = ("features", "logits", "labels", "index")
    joined: Batch = {name: torch.cat([vars(bank)[name] for bank in banks]) for name in rows}
    columns = {key: torch.cat([bank.columns[key] for bank in banks]) for key in banks[0].columns}
    return replace(banks[0], **joined, columns=columns)


def collate(samples: list[Batch]) -> Tensors:
    """Batches what the pass reads; the other entries of a sample are found by its index."""
    keys = ("image", "index", "label")
    batch: Tensors = default_collate([{k: sample[k] for k in keys} for sample in samples])
    return batch


@dataclass
class _Batches(Dataset[Batch]):
    """Batches by number.

    Lightning notes every row that a loader of rows has handed out, as long as the pass lasts.

    Args:
        images: the set.
        parts: of ``rows``.
        rows: of the set that pass.
        lenient: an unreadable image is reported and does not end the pass.
    """

    images: Images
    parts: DatasetParts
    rows: Sequence[int]
    lenient: bool

    def __len__(self) -> int:
        return self.parts.batches(self.parts.numbers[-1]).stop

    def __getitem__(self, batch: int) -> Batch:
        samples, errors = [], dict[int, str]()
        for place in self.parts.rows_of_batch(batch) if batch != _NONE else ():
            row = self.rows[place]
            try:
                samples.append(self.images[row])
            except UserError as error:
                if not self.lenient:
                    raise
                errors[row] = str(error)
        return {**(collate(samples) if samples else {}), "batch": batch, "errors": errors}


@dataclass
class _PartsOfProcess(DistributedSampler[int]):
    """The batches of the parts of a process; Lightning leaves a sampler of this kind unchanged."""

    trainer: Trainer
    parts: DatasetParts
    numbers: Sequence[int]

    @property
    def _own(self) -> Sequence[int]:
        # Asked for in the process itself: Lightning may start it later.
        return self.numbers[self.trainer.global_rank :: self.trainer.world_size]

    def __iter__(self) -> Iterator[int]:
        for part in self._own:
            yield from self.parts.batches(part)
        if not self._own:
            yield _NONE

    def __len__(self) -> int:
        return max(1, sum(len(self.parts.batches(part)) for part in self._own))

    def set_epoch(self, epoch: int) -> None:
        """Nothing is shuffled."""


@dataclass
class _Loader:
    """Batches on the device of the process; the next one travels while one is computed."""

    loader: DataLoader[Batch]
    trainer: Trainer

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Batch]:
        return copies_for(self.trainer.strategy.root_device).ahead(self.loader)


class _HandOver(Callback):
    """Hands the rows of a batch to the consumer, on a GPU while the next batch is computed."""

    def __init__(
        self,
        images: Images,
        parts: DatasetParts,
        backbone: Backbone,
        make: Callable[[Trainer], Consumer],
    ) -> None:
        self._images, self._parts, self._make = images, parts, make
        self._head = weight_and_bias(backbone.head)
        self._under_way: deque[tuple[Arrival | None, Batch]] = deque()

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Makes the consumer."""
        self._consumer = self._make(trainer)
        self._copies = copies_for(trainer.strategy.root_device)
        self._errors: ReadErrors = {}

    def on_predict_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, *_: Any
    ) -> None:
        """Starts the copy of a batch, and hands over one that has arrived.

        Raises:
            UserError: features or logits are not finite.
        """
        self._under_way.append((self._copies.to_host(outputs) if outputs else None, batch))
        if len(self._under_way) > self._copies.lag:
            self._hand_over()

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Hands over the last batch."""
        while self._under_way:
            self._hand_over()
        self._consumer.end(trainer)

    def _hand_over(self) -> None:
        arrival, batch = self._under_way.popleft()
        if arrival is not None:
            self._consumer.take(self._bank(arrival()))
        self._errors |= batch["errors"]
        part = self._parts.ended_by(batch["batch"]) if batch["batch"] != _NONE else None
        if part is not None:
            self._consumer.close(part, self._errors)
            self._errors = {}

    def _bank(self, rows: Batch) -> FeatureBank:
        named = {name: rows[name] for name in ("features", "logits", "labels", "index")}
        if not rows["finite"]:
            for name in ("logits", "features"):
                require_finite(name, named[name], named["index"], self._images)
        weight, bias = self._head
        return FeatureBank(**named, head_weight=weight, head_bias=bias, columns=rows["columns"])


def require_finite(name: str, values: Tensor, index: Tensor, images: Images) -> None:
    """Raises :class:`UserError` where ``values [n, D]`` of rows ``index [n]`` are not finite."""
    finite = torch.isfinite(values)
    if finite.all():
        return
    rows = index[~finite.all(dim=1)][:3].tolist()
    raise UserError(
        f"{name} of '{images.name}' are not finite in rows {rows} "
        f"({', '.join(map(images.address, rows))}): check the weights of the backbone, these "
        "images, and the precision"
    )


def pass_through(
    trainer: Trainer,
    backbone: Backbone,
    images: Images,
    columns: Iterable[BankColumn],
    parts: DatasetParts,
    consumer: Callable[[Trainer], Consumer],
    *,
    numbers: Sequence[int] | None = None,
    rows: Sequence[int] | None = None,
    num_workers: int = 0,
    lenient: bool = False,
) -> Extractor:
    """Passes images through the network, on all processes.

    Args:
        trainer: its processes share the parts out.
        backbone: left as it was.
        images: with their transform set.
        columns: what detectors want of the pass; equal keys are computed once.
        parts: of the images, or of ``rows``.
        consumer: makes what takes the rows, in the process that computes them.
        numbers: of the parts to make; the same on every process; None = all.
        rows: of the images that pass; None = all.
        num_workers: loader processes, for each process.
        lenient: an unreadable image is reported to the consumer and does not end the pass.

    Returns:
        What computed the rows, with the chunk that it took.

    Raises:
        UserError: features are not finite, an image cannot be read, a column cannot be served, or
            the trainer would leave images out.
    """
    limit = trainer.limit_predict_batches
    if isinstance(limit, int) or limit < 1.0:  # an integer counts batches: 1 is not 1.0
        raise UserError(
            f"the trainer would omit images of '{images.name}': extraction needs "
            "trainer.limit_predict_batches=1.0 and no fast_dev_run"
        )
    extractor = Extractor(
        backbone,
        list({column.key: column for column in columns}.values()),
        batch_size=parts.batch_size,
        description=images.name,
        processes=trainer.num_devices,
    )
    numbers = parts.numbers if numbers is None else numbers
    rows = range(len(images)) if rows is None else rows
    batches = sum(len(parts.batches(part)) for part in numbers)
    workers = loading_processes(trainer, num_workers, batches)
    size = min(parts.batch_size, len(rows))
    loader: DataLoader[Batch] = DataLoader(
        _Batches(images, parts, rows, lenient),
        batch_size=None,
        sampler=_PartsOfProcess(trainer, parts, numbers),
        num_workers=fitting_processes(workers, size, lambda: images[rows[0]], trainer.num_devices),
        pin_memory=trainer.strategy.root_device.type == "cuda",
    )
    start = time.perf_counter()
    _predict(trainer, extractor, loader, _HandOver(images, parts, backbone, consumer))
    if trainer.global_rank == 0:
        n = counted(sum(len(parts.rows(part)) for part in numbers), "image")
        seconds, facts = time.perf_counter() - start, extractor.chunk_facts
        chunk = ", {chunk} at a time, {memory_format}".format(**facts) if facts else ""
        log.info("'%s': %s passed in %.1f s%s", images.name, n, seconds, chunk)
    return extractor


def _predict(
    trainer: Trainer,
    extractor: Extractor,
    loader: DataLoader[Batch],
    hand_over: Callback,
) -> None:
    loop = trainer.predict_loop
    inference_mode = loop.inference_mode
    loop.inference_mode = False  # the extractor enters it wherever no gradient is wanted
    trainer.callbacks.append(hand_over)  # type: ignore[attr-defined]
    try:
        with frozen(extractor.backbone), warnings.catch_warnings():
            # The number of workers is the caller's choice; LeafSpec is Lightning's own affair.
            warnings.filterwarnings("ignore", message=".*does not have many workers|.*LeafSpec")
            trainer.predict(extractor, _Loader(loader, trainer), return_predictions=False)
    except Exception as error:
        if (plain := user_error_in(error)) is None:
            raise
        raise plain from error
    finally:
        extractor.close()
        trainer.callbacks.remove(hand_over)  # type: ignore[attr-defined]
        loop.inference_mode = inference_mode


#: Waits until rows are on the host, and gives them.
Arrival = Callable[[], Batch]


class Copies:
    """Images to the device and rows to the host: of a CPU, and of devices without streams.

    Attributes:
        lag: batches that are computed before the rows of one are read.
    """

    lag = 0

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def ahead(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The batches with their ``image`` on the device; none is read before it is needed."""
        return (moved(batch, lambda x: x.to(self._device)) for batch in batches)

    def to_host(self, rows: Batch) -> Arrival:
        """Begins the copy of rows."""
        return lambda: on_each(rows, Tensor.cpu)


class StreamedCopies(Copies):
    """Of a CUDA device: on two streams of their own, from and to pinned memory.

    Two batches are on the device at most. The rows of one are read while the next is computed.
    """

    lag = 1

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._up, self._down = torch.cuda.Stream(device), torch.cuda.Stream(device)

    def ahead(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """See :class:`Copies`; the next batch is on its way."""
        under_way: deque[tuple[Batch, torch.cuda.Event]] = deque()
        for batch in batches:
            with torch.cuda.stream(self._up):
                later = moved(batch, lambda x: x.to(self._device, non_blocking=True))
                under_way.append((later, self._up.record_event()))
            if len(under_way) > 1:
                yield self._ordered(*under_way.popleft())
        for batch, copied in under_way:
            yield self._ordered(batch, copied)

    def _ordered(self, batch: Batch, copied: torch.cuda.Event) -> Batch:
        """Later work on the device waits for the copy; the host does not."""
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(copied)
        moved(batch, lambda x: x.record_stream(stream))
        return batch

    def to_host(self, rows: Batch) -> Arrival:
        """See :class:`Copies`."""
        self._down.wait_event(torch.cuda.current_stream(self._device).record_event())

        def copy(values: Tensor) -> Tensor:
            if values.device.type == "cpu":
                return values
            values.record_stream(self._down)
            pinned = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
            return pinned.copy_(values, non_blocking=True)

        with torch.cuda.stream(self._down):
            host, event = on_each(rows, copy), self._down.record_event()

        def wait() -> Batch:
            event.synchronize()
            return host

        return wait


def moved(batch: Batch, move: Callable[[Tensor], Any]) -> Batch:
    """A batch with its images moved, if any could be read."""
    return batch | {"image": move(batch["image"])} if "image" in batch else batch


def on_each(rows: Batch, change: Callable[[Tensor], Tensor]) -> Batch:
    """Rows, and those in a dictionary among them, each changed."""
    return {
        key: on_each(values, change) if isinstance(values, dict) else change(values)
        for key, values in rows.items()
    }


def copies_for(device: torch.device) -> Copies:
    """The copies that suit a device."""
    return StreamedCopies(device) if device.type == "cuda" else Copies(device)
