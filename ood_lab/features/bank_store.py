"""Where feature banks live on disk.

::

    <root>/<key>/manifest.json             what the bank was made from, its shards and checksums
                 head.safetensors          weight [C, D], bias [C]
                 base-<rank>-of-<world>.safetensors   index, features, logits, labels
                 columns/<column>/manifest.json, column-<rank>-of-...   index, values
    <root>/.partial/<key>-<token>/         a pass under way, or what a killed one has left
    <root>/.locks/<key>                    held by the process that leads the pass

A bank and each of its columns appear by one rename, so they are complete or absent.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lightning.pytorch import Trainer
from safetensors.torch import load_file

from ood_lab.common.errors import UserError
from ood_lab.common.file_records import text_sha256
from ood_lab.common.files import lock, require_space, try_lock
from ood_lab.common.tensor_file import Tensors, save_tensors
from ood_lab.features import row_shards as shards
from ood_lab.features.bank import FeatureBank
from ood_lab.features.extraction_pass import Images, ReadErrors
from ood_lab.features.row_shards import roomy, writing
from ood_lab.models.output import WeightAndBias
from ood_lab.schema.run_record import BankRecord

log = logging.getLogger(__name__)

HEAD = "head.safetensors"
COLUMNS = "columns"
#: Seconds after which the folder of a pass that has ended without its lock is removed.
KEPT = 2 * 24 * 3600


@dataclass(frozen=True)
class Missing:
    """What a pass has to compute: the base (features, logits, labels) and columns."""

    base: bool
    columns: list[str]

    def __bool__(self) -> bool:
        return self.base or bool(self.columns)


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
    return FeatureBank(
        features=base["features"],
        logits=base["logits"],
        labels=base["labels"],
        index=base["index"],
        head_weight=head["weight"],
        head_bias=head["bias"],
        columns=values,
        record=record.model_copy(update={"columns": list(columns), "checksums": {}}),
    )


def _load_head(folder: Path) -> Tensors:
    with shards.readable(folder / HEAD):
        return load_file(folder / HEAD)


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
        """Removes the bank and its columns; call it while ``locked``."""
        log.warning("feature cache '%s' %s: extracting again", self.folder, reason)
        with writing(self.root):
            shutil.rmtree(self.folder)

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
                shards.seal(staging, n, record)
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
    """Consumer that collects the rows of one process, and writes them at the end as one shard.

    Args:
        staging: folder of the pass; rank 0's holds for all.
        images: the dataset of the pass.
        trainer: of the pass.
        base: features, logits and labels are written, not only columns.
        rows: that this process computes at most.
    """

    def __init__(
        self, staging: Path, images: Images, trainer: Trainer, *, base: bool, rows: int
    ) -> None:
        # Every process of a script that ddp started has named a folder of its own.
        self._staging = Path(trainer.strategy.broadcast(str(staging)))
        self._name, self._base, self._rows = images.name, base, rows
        self._shard = f"{trainer.global_rank:05d}-of-{trainer.world_size:05d}.safetensors"
        self._world_size = trainer.world_size
        self._tensors: dict[str, Tensors] = {}
        self._filled = 0

    def take(self, rows: FeatureBank) -> None:
        """Copies the rows of a batch.

        Raises:
            UserError: the disk cannot hold the bank.
        """
        tensors = self._by_folder(rows)
        if not self._tensors:
            self._allocate(tensors)
        end = self._filled + len(rows)
        for folder, values in tensors.items():
            for name, value in values.items():
                self._tensors[folder][name][self._filled : end] = value
        self._filled = end

    def close(self, part: int, errors: ReadErrors) -> None:
        """Parts are no files of their own."""

    def end(self, trainer: Trainer) -> None:
        """Writes the shard; afterwards those of all processes are complete."""
        with writing(self._staging.parents[1]):
            for folder, tensors in self._tensors.items():
                file = self._staging / folder / f"{'column' if folder else 'base'}-{self._shard}"
                save_tensors({k: v[: self._filled] for k, v in tensors.items()}, file)
        self._tensors = {}
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

    def _allocate(self, tensors: dict[str, Tensors]) -> None:
        """Room for all rows: what the columns take is known from the first batch on."""
        row_bytes = sum(v[:1].nbytes for values in tensors.values() for v in values.values())
        needed = self._rows * self._world_size * row_bytes
        require_space(self._staging, needed, f"the features of '{self._name}'")
        for folder, values in tensors.items():
            (self._staging / folder).mkdir(parents=True, exist_ok=True)
            self._tensors[folder] = {
                name: roomy((self._rows, *value.shape[1:]), value.dtype, self._staging)
                for name, value in values.items()
            }
