"""Where feature banks live on disk.

::

    <root>/<key>/manifest.json             what the bank was made from, its shards and checksums
                 head.safetensors          weight [C, D], bias [C]
                 base-<rank>-of-<world>-<part>.safetensors   index, features, logits, labels
                 columns/<column>/manifest.json, column-<rank>-of-...   index, values
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
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
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
from ood_lab.features.extraction_pass import Images, ReadErrors
from ood_lab.features.moments import MOMENTS, Derived, Moments
from ood_lab.features.row_shards import shard_name, writing
from ood_lab.models.output import WeightAndBias
from ood_lab.schema.run_record import BankRecord

log = logging.getLogger(__name__)

HEAD = "head.safetensors"
COLUMNS = "columns"
#: Moments of the rows of every process, until the bank is complete.
PARTIAL = "moments"
#: Seconds that the shards of a killed pass wait for the pass to be repeated.
KEPT = 2 * 24 * 3600


@dataclass(frozen=True)
class Missing:
    """What a pass has to compute: the base (features, logits, labels) and columns."""

    base: bool
    columns: list[str]

    def __bool__(self) -> bool:
        return self.base or bool(self.columns)


@dataclass(frozen=True)
class Begun:
    """What a killed pass has written, every row in all folders of the pass.

    Attributes:
        folder: of the pass.
        shards: paths in it.
        rows: ``[n] int64``, of the data set.
        parts: number of the first part that none of its processes has written.
    """

    folder: Path
    shards: frozenset[str]
    rows: Tensor
    parts: int

    def rows_left(self, n: int) -> list[int]:
        """Rows of a data set of ``n`` images that have to pass."""
        left = torch.ones(n, dtype=torch.bool)
        left[self.rows] = False
        return left.nonzero().flatten().tolist()


def column_folder(key: str) -> str:
    """Folder name of a column: readable, and different for different keys."""
    slug = re.sub(r"[^\w.-]+", "_", key)[:60]
    return f"{slug}-{text_sha256(key)[:12]}"


def load(folder: Path, columns: Sequence[str] | None = None) -> FeatureBank:
    """Reads a bank.

    Args:
        folder: ``<root>/<key>``.
        columns: keys to read; None = all that the bank has.

    Raises:
        UserError: the bank or a column is absent or damaged; the message names the file.
    """
    record = shards.check(folder)
    base = shards.gather(folder)
    shards.verify(record, folder / HEAD)
    head = _load_head(folder)
    if columns is None:
        manifests = sorted((folder / COLUMNS).glob(f"*/{shards.MANIFEST}"))
        columns = [shards.check(path.parent).key for path in manifests]
    values = {
        key: shards.gather(folder / COLUMNS / column_folder(key))["values"] for key in columns
    }
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


def _begun(path: Path, folders: Sequence[str], n: int, least: int) -> Begun | None:
    """The shards of a folder whose rows are whole in all of ``folders``."""
    kept: dict[tuple[str, ...], Tensor] = {}
    for first in sorted((path / folders[0]).glob("*-of-*.safetensors")):
        part = first.name.partition("-")[2]
        names = [f"{folder}/column-{part}" if folder else f"base-{part}" for folder in folders]
        try:
            rows = [shards.index_of(path / name) for name in names]
        except UserError:  # it was being written
            continue
        if all(torch.equal(rows[0], other) for other in rows):
            kept[tuple(names)] = rows[0]
    while kept and sum(map(len, kept.values())) > n - least:
        kept.popitem()
    if not kept:
        return None
    rows_of_all = torch.cat(list(kept.values()))
    if len(rows_of_all.unique()) < len(rows_of_all) or int(rows_of_all.max()) >= n:
        return None
    parts = 1 + max(int(names[0].rpartition("-")[2].partition(".")[0]) for names in kept)
    return Begun(path, frozenset(name for names in kept for name in names), rows_of_all, parts)


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

    def missing(self, columns: Sequence[str]) -> Missing:
        """Which parts are absent, by manifests and headers; contents are compared when read."""
        return Missing(
            not self._complete(self.folder),
            [key for key in columns if not self._complete(self._column(key))],
        )

    def discard(self, reason: str) -> None:
        """Removes the bank, its columns and what killed passes have left of it; ``locked``."""
        log.warning("feature cache '%s' %s: extracting again", self.folder, reason)
        with writing(self.root):
            shutil.rmtree(self.folder)
        self.tidy(None)

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

    def begun(self, missing: Missing, n: int, least: int) -> Begun | None:
        """What a killed pass has left of what is missing; None where it is nothing.

        All processes find the same: none writes a shard before it is connected with the others.

        Args:
            missing: what this pass has to compute.
            n: images of the data set.
            least: so many are left to compute; shards too many do not count.
        """
        folders = [f"{COLUMNS}/{column_folder(key)}" for key in missing.columns]
        folders += [""] if missing.base else []
        passes = [_begun(path, folders, n, least) for path in self._left_behind()]
        return max((b for b in passes if b), key=lambda b: len(b.rows), default=None)

    def tidy(self, begun: Begun | None) -> None:
        """Removes all else that killed passes have left of this bank; call it while ``locked``."""
        for path in self._left_behind():
            if begun is None or path != begun.folder:
                shutil.rmtree(path, ignore_errors=True)
                continue
            for file in path.rglob("*"):
                if file.is_file() and str(file.relative_to(path)) not in begun.shards:
                    file.unlink()

    def _left_behind(self) -> list[Path]:
        return sorted(self._partial.glob(f"{self.key}-*"))

    def stage(self) -> Path:
        """A new folder to write into; its name is never used twice, so passes cannot mix."""
        path = self._partial / f"{self.key}-{uuid.uuid4().hex[:12]}"
        path.mkdir(parents=True)
        return path

    def publish(
        self,
        staging: Path,
        n: int,
        columns: Sequence[str],
        record: BankRecord,
        head: WeightAndBias | None,
    ) -> None:
        """Makes what a finished pass has written part of the bank; call it while ``locked``.

        Args:
            staging: the folder from :meth:`stage`.
            n: number of images.
            columns: keys of the columns in it.
            record: what the bank is made from.
            head: its weight and bias when the pass wrote the base, else None.

        Raises:
            UserError: the shards do not hold every image once, or the disk is full.
        """
        pass_facts = record.model_dump(include={"chunk", "memory_format"})
        with writing(self.root):
            for key in columns:
                shards.seal(
                    staging / COLUMNS / column_folder(key), n, BankRecord(key=key, **pass_facts)
                )
            if head is not None:
                weight, bias = head
                save_tensors({"weight": weight, "bias": bias}, staging / HEAD)
                identity = _identity(shards.seal(staging, n, record))
                if moments := Moments.of_processes(staging / PARTIAL):
                    moments.save(staging / MOMENTS, identity)
                    shutil.rmtree(staging / PARTIAL)
                self._replace(staging, self.folder)
                return
            for key in columns:
                self._replace(staging / COLUMNS / column_folder(key), self._column(key))
            shutil.rmtree(staging)

    def _column(self, key: str) -> Path:
        return self.folder / COLUMNS / column_folder(key)

    def _lock(self, key: str) -> Path:
        return self.root / ".locks" / key

    def _complete(self, folder: Path) -> bool:
        try:
            shards.check(folder)
            if folder == self.folder:
                _load_head(folder)
        except UserError:
            return False
        return True

    def _replace(self, source: Path, target: Path) -> None:
        """Renames a folder onto ``target``; what is there (a damaged part) is removed."""
        target.parent.mkdir(exist_ok=True)
        if target.exists():
            trash = self.stage()
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
        staging: folder of the pass; rank 0's holds for all.
        images: the dataset of the pass.
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
        trainer: Trainer,
        *,
        base: bool,
        moments: Collection[str],
        rows: int,
        first_part: int,
    ) -> None:
        # Every process of a script that ddp started has named a folder of its own.
        self._staging = Path(trainer.strategy.broadcast(str(staging)))
        self._name, self._base, self._rows = images.name, base, rows
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
            UserError: the disk cannot hold the bank.
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

    def _by_folder(self, rows: FeatureBank) -> dict[str, Tensors]:
        """The rows by sub-folder: the base in ``""``, each column in its own."""
        tensors = {
            f"{COLUMNS}/{column_folder(key)}": {"index": rows.index, "values": values}
            for key, values in rows.columns.items()
        }
        if self._base:
            base = {"features": rows.features, "logits": rows.logits, "labels": rows.labels}
            tensors[""] = {"index": rows.index, **base}
        return tensors

    def _allocate(self, tensors: dict[str, Tensors], size: int) -> None:
        """Sizes the buffer by a batch: what the columns take is known from the first one on."""
        row_bytes = sum(v[:1].nbytes for values in tensors.values() for v in values.values())
        if not self._capacity:
            name = f"the features of '{self._name}'"
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
