"""Writes what the one pass computes, without talking to other processes."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import torch
from lightning.pytorch import Trainer

from ood_lab.common.files import require_space
from ood_lab.common.tensor_file import Tensors, save_tensors
from ood_lab.features.bank import FeatureBank
from ood_lab.features.bank_store import COLUMNS, PARTIAL, column_folder
from ood_lab.features.disk_space import writing
from ood_lab.features.extraction_pass import Images, require_finite
from ood_lab.features.moments import FILE, Moments
from ood_lab.features.row_shards import shard_name


class FeatureWriter:
    """Consumer that collects the rows of one process in a buffer and writes shards of it.

    A shard is written in a thread while the next one is filled.

    Args:
        staging: folder of the pass; rank 0's holds for all.
        images: the dataset of the pass.
        dtype: type of the features on disk.
        trainer: of the pass.
        base: features, logits and labels are written, not only columns.
        moments: parts of the moments that are gathered from the rows; none, of no rows.
        rows: of the dataset that the pass computes.
        first_part: number of the first shard of every process.
    """

    #: Size of the buffer, and so of a shard.
    shard_bytes = 256 * 2**20

    def __init__(
        self,
        staging: Path,
        images: Images,
        dtype: torch.dtype,
        trainer: Trainer,
        *,
        base: bool,
        moments: Collection[str] = (),
        rows: int,
        first_part: int = 0,
    ) -> None:
        # Every process of a script that ddp started has named a folder of its own.
        self._staging = Path(trainer.strategy.broadcast(str(staging)))
        self._images, self._dtype, self._base, self._rows = images, dtype, base, rows
        self._rank, self._world_size = trainer.global_rank, trainer.world_size
        self._device = trainer.strategy.root_device
        self._moments = Moments({"means", *moments}) if base and moments else None
        self._buffer: dict[str, Tensors] = {}
        self._capacity = 0
        self._filled = 0
        self._part = first_part
        self._thread = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None

    def take(self, rows: FeatureBank) -> None:
        """Copies the rows of a batch into the buffer.

        Raises:
            UserError: features are beyond the range of their type on disk, or the disk cannot hold
                the bank.
        """
        tensors = self._by_folder(rows)
        if self._filled + len(rows) > self._capacity:
            self._flush()
        if not self._buffer:
            self._allocate(tensors, len(rows))
        end = self._filled + len(rows)
        for folder, values in tensors.items():
            for name, value in values.items():
                self._buffer[folder][name][self._filled : end] = value
        self._filled = end

    def close(self, part: int, errors: dict[int, str]) -> None:
        """Parts are no files of their own."""

    def end(self, trainer: Trainer) -> None:
        """Writes the last shard; afterwards those of all processes are complete."""
        self._flush()
        self._written()
        self._thread.shutdown()
        if self._moments and self._moments.sums:
            gathered, file = self._moments.gathered(), f"{self._rank:05d}.safetensors"
            FILE.write(self._staging / PARTIAL / file, gathered.sums, gathered.description(""))
        trainer.strategy.barrier("features written")

    def _by_folder(self, rows: FeatureBank) -> dict[str, Tensors]:
        """The rows by sub-folder: the base in ``""``, each column in its own."""
        tensors = {
            f"{COLUMNS}/{column_folder(key)}": {"index": rows.index, "values": values}
            for key, values in rows.columns.items()
        }
        if self._base:
            features = rows.features.to(self._dtype)
            if self._dtype != torch.float32:
                require_finite("features", features, rows.index, self._images)
            base = {"logits": rows.logits, "labels": rows.labels}
            tensors[""] = {"index": rows.index, "features": features, **base}
        return tensors

    def _allocate(self, tensors: dict[str, Tensors], size: int) -> None:
        """Sizes the buffer by a batch: what the columns take is known from the first one on."""
        row_bytes = sum(v[:1].nbytes for values in tensors.values() for v in values.values())
        if not self._capacity:
            name = f"the features of '{self._images.name}'"
            require_space(self._staging, self._rows * row_bytes, name)
            for folder in tensors:
                (self._staging / folder).mkdir(parents=True, exist_ok=True)
        self._capacity = max(size, min(self._rows, self.shard_bytes // row_bytes))
        self._buffer = {
            folder: {k: v.new_empty((self._capacity, *v.shape[1:])) for k, v in values.items()}
            for folder, values in tensors.items()
        }

    def _flush(self) -> None:
        """Hands the buffer to the thread, once it has written the one before."""
        if not self._filled:
            return
        self._written()
        shard = {
            folder: {key: values[: self._filled] for key, values in tensors.items()}
            for folder, tensors in self._buffer.items()
        }
        self._writing = self._thread.submit(self._write, shard, self._part)
        self._buffer, self._filled, self._part = {}, 0, self._part + 1

    def _written(self) -> None:
        if self._writing is not None:
            self._writing.result()

    @torch.no_grad()
    def _write(self, shard: dict[str, Tensors], part: int) -> None:
        for folder, rows in shard.items():
            name = shard_name("column" if folder else "base", self._rank, self._world_size, part)
            with writing(self._staging.parents[1]):
                save_tensors(rows, self._staging / folder / name)
        if self._moments:
            base = shard[""]
            self._moments.update(base["features"], base["logits"], base["labels"], self._device)
