"""Where feature banks live on disk.

::

    <root>/<key>/manifest.json             what the bank was made from, its shards and checksums
                 head.safetensors          weight [C, D], bias [C]
                 rows-<rank>-of-<world>-<part>.safetensors   index, features, logits, labels
                 columns/<column>/manifest.json, rows-<rank>-of-...   index, values
    <root>/.partial/<key>-<token>/         a pass under way, or what a killed one has left
    <root>/.locks/<key>                    held by the process that leads the pass

A bank and each of its columns appear by one rename, so they are complete or absent. A pass that was
killed resumes after the shards that it had written.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from lightning.pytorch import Trainer
from safetensors.torch import load_file
from torch import Tensor

from ood_lab.common.errors import UserError
from ood_lab.common.file_records import json_sha256, text_sha256
from ood_lab.common.files import lock, require_space, try_lock
from ood_lab.common.tensor_file import Tensors, save_tensors
from ood_lab.features import row_shards as shards
from ood_lab.features.bank import FeatureBank
from ood_lab.features.extraction_pass import Images, ReadErrors, on_each
from ood_lab.features.moments import MOMENTS, Derived, Moments
from ood_lab.features.row_shards import shard_name, writing
from ood_lab.models.output import WeightAndBias
from ood_lab.schema.run_record import BankRecord

log = logging.getLogger(__name__)

HEAD = "head.safetensors"
COLUMNS = "columns"
#: Name of features, logits and labels among the parts of a bank; the others are keys of columns.
BASE = ""
#: Moments of the rows of every process, until the bank is complete.
PARTIAL = "moments"
#: Seconds that the shards of a killed pass wait for the pass to be repeated.
KEPT = 2 * 24 * 3600


@dataclass(frozen=True)
class Begun:
    """A pass: its folder, and what a killed one has written there, every row of all parts.

    Attributes:
        folder: of the pass.
        shards: files in it.
        rows: ``[n] int64``, of the data set.
        first: number of the first shard that none of its processes has written.
    """

    folder: Path
    shards: frozenset[Path] = frozenset()
    rows: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    first: int = 0

    def rows_left(self, n: int) -> Sequence[int]:
        """Rows of a data set of ``n`` images that have to pass."""
        if not len(self.rows):
            return range(n)
        left = torch.ones(n, dtype=torch.bool)
        left[self.rows] = False
        return left.nonzero().flatten().tolist()


def column_folder(key: str) -> str:
    """Folder name of a column: readable, and different for different keys."""
    slug = re.sub(r"[^\w.-]+", "_", key)[:60]
    return f"{slug}-{text_sha256(key)[:12]}"


def part_folder(folder: Path, part: str) -> Path:
    """Where a part of a bank is, from the folder of the bank."""
    return folder if part == BASE else folder / COLUMNS / column_folder(part)


def load(folder: Path, columns: Sequence[str]) -> FeatureBank:
    """Reads a bank.

    Args:
        folder: ``<root>/<key>``.
        columns: keys to read.

    Raises:
        UserError: the bank or a column is absent or damaged; the message names the file.
    """
    record = shards.check(folder)
    base = shards.gather(folder)
    shards.verify(record, folder / HEAD)
    head = _load_head(folder)
    values = {key: shards.gather(part_folder(folder, key))["values"] for key in columns}
    features, logits, labels = base["features"], base["logits"], base["labels"]
    return FeatureBank(
        features=features,
        logits=logits,
        labels=labels,
        index=base["index"],
        head_weight=head["weight"],
        head_bias=head["bias"],
        columns=values,
        record=record.model_copy(update={"columns": list(columns), "checksums": {}}),
        derived=Derived(features, logits, labels, folder / MOMENTS, _identity(record)),
    )


def _identity(record: BankRecord) -> str:
    """The very bytes of a bank: an extraction repeated may differ in the last digit."""
    return json_sha256(record.checksums)


def _load_head(folder: Path) -> Tensors:
    with shards.readable(folder / HEAD):
        return load_file(folder / HEAD)


def _begun(path: Path, parts: Sequence[str], n: int, least: int) -> Begun:
    """The shards of a folder whose rows are whole in all ``parts``."""
    folders = [part_folder(path, part) for part in parts]
    kept: dict[str, Tensor] = {}
    for file in sorted(folders[0].glob("*-of-*.safetensors")):
        try:
            rows, *others = [shards.index_of(folder / file.name) for folder in folders]
        except UserError:  # it was being written
            continue
        if all(torch.equal(rows, other) for other in others):
            kept[file.name] = rows
    while kept and sum(map(len, kept.values())) > n - least:
        kept.popitem()
    rows_of_all = torch.cat([torch.empty(0, dtype=torch.int64), *kept.values()])
    if len(rows_of_all.unique()) < len(rows_of_all) or bool((rows_of_all >= n).any()):
        return Begun(path)
    first = 1 + max((shards.number_of(name) for name in kept), default=-1)
    whole = frozenset(folder / name for folder in folders for name in kept)
    return Begun(path, whole, rows_of_all, first)


class BankStore:
    """One bank under ``root``: what it lacks, the lock of its writers, publication.

    Args:
        root: folder of all banks.
        key: see :class:`~ood_lab.schema.run_record.BankRecord`.
    """

    def __init__(self, root: Path, key: str) -> None:
        self.root = root
        self.key = key
        self.folder = root / key
        self._partial = root / ".partial"

    def missing(self, columns: Iterable[str]) -> list[str]:
        """The parts that are absent, by manifests and headers; contents are compared when read."""
        return [part for part in (BASE, *columns) if not self._complete(part)]

    def discard(self, reason: str) -> None:
        """Removes the bank, its columns and what killed passes have left of it; ``locked``."""
        log.warning("feature cache '%s' %s: extracting again", self.folder, reason)
        with writing(self.root):
            shutil.rmtree(self.folder)
        self.tidy(Begun(self.folder))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the right to write this bank; waits while another process has it.

        Raises:
            UserError: ``root`` cannot be written.
        """
        with writing(self.root):
            (self.root / ".locks").mkdir(parents=True, exist_ok=True)
            self._sweep()
            handle = open(self._lock(self.key), "w")  # noqa: SIM115 - closed below
        with handle:
            lock(handle, "waiting for another process that extracts the same features")
            try:
                yield
            finally:
                # Forked helpers share the open file: closing it here would not be enough.
                fcntl.flock(handle, fcntl.LOCK_UN)

    def begun(self, missing: Sequence[str], n: int, least: int) -> Begun:
        """What a killed pass has left of what is missing, or a new pass.

        All processes find the same: none writes a shard before it is connected with the others. Of
        a new pass each names a folder of its own.

        Args:
            missing: parts that this pass has to compute.
            n: images of the data set.
            least: so many are left to compute; shards too many do not count.
        """
        passes = [_begun(path, missing, n, least) for path in self._left_behind()]
        most = max(passes, key=lambda begun: len(begun.rows), default=None)
        return most if most and len(most.rows) else Begun(self.new_folder())

    def tidy(self, begun: Begun) -> None:
        """Removes all else that killed passes have left of this bank; call it while ``locked``."""
        for path in self._left_behind():
            if path != begun.folder:
                shutil.rmtree(path, ignore_errors=True)
                continue
            for file in path.rglob("*"):
                if file.is_file() and file not in begun.shards:
                    file.unlink()

    def _left_behind(self) -> list[Path]:
        return sorted(self._partial.glob(f"{self.key}-*"))

    def new_folder(self) -> Path:
        """A folder to write into; its name is never used twice, so passes cannot mix."""
        return self._partial / f"{self.key}-{uuid.uuid4().hex[:12]}"

    def publish(
        self, folder: Path, n: int, parts: Collection[str], record: BankRecord, head: WeightAndBias
    ) -> None:
        """Makes what a finished pass has written part of the bank; call it while ``locked``.

        Args:
            folder: of the pass.
            n: number of images.
            parts: in it.
            record: what the bank is made from.
            head: its weight and bias.

        Raises:
            UserError: the shards do not hold every image once, or the disk is full.
        """
        pass_facts = record.model_dump(include={"chunk", "memory_format"})
        with writing(self.root):
            if BASE in parts:
                save_tensors({"weight": head[0], "bias": head[1]}, folder / HEAD)
            for part in parts:
                of_part = record if part == BASE else BankRecord(key=part, **pass_facts)
                sealed = shards.seal(part_folder(folder, part), n, of_part)
                if part == BASE and (moments := Moments.of_processes(folder / PARTIAL)):
                    moments.save(folder / MOMENTS, _identity(sealed))
                    shutil.rmtree(folder / PARTIAL)
            for part in [BASE] if BASE in parts else parts:  # the base with the columns in it
                self._replace(part_folder(folder, part), part_folder(self.folder, part))
            shutil.rmtree(folder, ignore_errors=True)

    def _lock(self, key: str) -> Path:
        return self.root / ".locks" / key

    def _complete(self, part: str) -> bool:
        try:
            shards.check(part_folder(self.folder, part))
            if part == BASE:
                _load_head(self.folder)
        except UserError:
            return False
        return True

    def _replace(self, source: Path, target: Path) -> None:
        """Renames a folder onto ``target``; what is there (a damaged part) is removed."""
        target.parent.mkdir(exist_ok=True)
        if target.exists():
            trash = self.new_folder()
            os.replace(target, trash)
            shutil.rmtree(trash, ignore_errors=True)
        os.replace(source, target)

    def _sweep(self) -> None:
        """Removes what processes left that were killed long ago: folders whose lock is free."""
        for path in self._partial.glob("*-*"):
            try:
                if time.time() - path.stat().st_mtime <= KEPT:
                    continue
            except FileNotFoundError:  # another process was quicker
                continue
            with open(self._lock(path.name.rsplit("-", 1)[0]), "w") as handle:
                if try_lock(handle):
                    shutil.rmtree(path, ignore_errors=True)


class FeatureWriter:
    """Consumer that collects the rows of one process in a buffer and writes shards of it.

    A shard is written in a thread while the next one is filled.

    Args:
        begun: the pass; rank 0's folder holds for all.
        images: the dataset of the pass.
        base: features, logits and labels are written, not only columns.
        moments: parts of the moments that are gathered, where the pass has all rows.
        trainer: of the pass.
    """

    #: Size of the buffer, and so of a shard.
    shard_bytes = 256 * 2**20

    def __init__(
        self,
        begun: Begun,
        images: Images,
        base: bool,
        moments: Collection[str],
        trainer: Trainer,
    ) -> None:
        # Every process of a script that ddp started has named a folder of its own.
        self._staging = trainer.strategy.broadcast(begun.folder)
        self._name, self._base, self._rows = images.name, base, len(begun.rows_left(len(images)))
        self._rank, self._world_size = trainer.global_rank, trainer.world_size
        self._device = trainer.strategy.root_device
        gathers = base and moments and not len(begun.rows)
        self._moments = Moments({"means", *moments}) if gathers else None
        self._buffer: dict[str, Tensors] = {}
        self._capacity = 0
        self._filled = 0
        self._part = begun.first
        self._thread = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None

    def take(self, rows: FeatureBank) -> None:
        """Copies the rows of a batch into the buffer.

        Raises:
            UserError: the disk cannot hold the bank.
        """
        tensors = self._by_part(rows)
        if self._filled + len(rows) > self._capacity:
            self._flush()
        if not self._buffer:
            self._allocate(tensors, len(rows))
        end = self._filled + len(rows)
        for folder, values in tensors.items():
            for name, value in values.items():
                self._buffer[folder][name][self._filled : end] = value
        self._filled = end

    def close(self, part: int, errors: ReadErrors) -> None:
        """Parts are no files of their own."""

    def end(self, trainer: Trainer) -> None:
        """Writes the last shard; afterwards those of all processes are complete."""
        self._flush()
        self._written()
        self._thread.shutdown()
        if self._moments and self._moments.sums:
            file = self._staging / PARTIAL / f"{self._rank:05d}.safetensors"
            self._moments.gathered().save(file)
        trainer.strategy.barrier("features written")

    def _by_part(self, rows: FeatureBank) -> dict[str, Tensors]:
        """The rows by part."""
        tensors = {
            key: {"index": rows.index, "values": values} for key, values in rows.columns.items()
        }
        if self._base:
            base = {"features": rows.features, "logits": rows.logits, "labels": rows.labels}
            tensors[BASE] = {"index": rows.index, **base}
        return tensors

    def _allocate(self, tensors: dict[str, Tensors], size: int) -> None:
        """Sizes the buffer by a batch: what the columns take is known from the first one on."""
        row_bytes = sum(v[:1].nbytes for values in tensors.values() for v in values.values())
        if not self._capacity:
            name = f"the features of '{self._name}'"
            require_space(self._staging, self._rows * row_bytes, name)
            for part in tensors:
                part_folder(self._staging, part).mkdir(parents=True, exist_ok=True)
        self._capacity = max(size, min(self._rows, self.shard_bytes // row_bytes))
        self._buffer = on_each(tensors, lambda v: v.new_empty((self._capacity, *v.shape[1:])))

    def _flush(self) -> None:
        """Hands the buffer to the thread, once it has written the one before."""
        if not self._filled:
            return
        self._written()
        shard = on_each(self._buffer, lambda values: values[: self._filled])
        self._writing = self._thread.submit(self._write, shard, self._part)
        self._buffer, self._filled, self._part = {}, 0, self._part + 1

    def _written(self) -> None:
        if self._writing is not None:
            self._writing.result()

    @torch.no_grad()
    def _write(self, shard: dict[str, Tensors], number: int) -> None:
        name = shard_name(self._rank, self._world_size, number)
        for part, rows in shard.items():
            with writing(self._staging.parents[1]):
                save_tensors(rows, part_folder(self._staging, part) / name)
        if self._moments:
            base = shard[BASE]
            self._moments.update(base["features"], base["logits"], base["labels"], self._device)
