"""Shards of rows on the disk, with room and locks for them.

A folder is complete when its ``manifest.json`` names the shards and their rows add up to ``n``.
The manifest is written last, so an interrupted writer never leaves a folder that looks complete.
It holds a checksum of every other file, which is compared before a row is used: a bank that
lost some of its bytes would otherwise give other scores without a word.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import torch
import xxhash
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.files import DISK_FULL
from ood_lab.common.tensor_file import Tensors
from ood_lab.schema.run_record import BankRecord

log = logging.getLogger(__name__)

#: Bytes from which a tensor of a bank is a mapped file.
MAPPED = 2**30


def roomy(shape: tuple[int, ...], dtype: torch.dtype, folder: Path) -> Tensor:
    """An empty tensor: in memory, or, from :data:`MAPPED` bytes on, in a mapped file of ``folder``.

    The system writes pages of a mapped file to the disk when memory runs short, so that a bank may
    be larger than the memory. The file has no name and goes with the tensor. Where the disk cannot
    hold it, the tensor is in memory, and a warning says so.
    """
    size = math.prod(shape) * dtype.itemsize
    if size < MAPPED:
        return torch.empty(shape, dtype=dtype)
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".mapped-") as file:
            # Room is taken now: a full disk would end the process at some later write.
            os.posix_fallocate(file.fileno(), 0, size)
            flat = torch.from_file(file.name, shared=True, size=math.prod(shape), dtype=dtype)
    except OSError as error:  # full, or not to be written
        log.warning(
            "a tensor of %.1f GiB is in memory: '%s' cannot hold it (%s)",
            size / 2**30,
            folder,
            error.strerror,
        )
        return torch.empty(shape, dtype=dtype)
    return flat.view(shape)


@contextmanager
def writing(root: Path) -> Iterator[None]:
    """Turns an error of the file system into a message about ``root``."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        code = error.errno if isinstance(error, OSError) else None
        full = code in DISK_FULL or "os error 28" in str(error)
        remedy = "make room, and the same command resumes; or " if full else ""
        raise UserError(
            f"cached features cannot be written under '{root}' ({error}): {remedy}choose another "
            "folder"
        ) from error


MANIFEST = "manifest.json"


def shard_name(rank: int, world_size: int, number: int) -> str:
    """File name of a shard of one process."""
    return f"rows-{rank:05d}-of-{world_size:05d}-{number:05d}.safetensors"


def number_of(name: str) -> int:
    """The number in a :func:`shard_name`."""
    return int(name.rpartition("-")[2].partition(".")[0])


def readable(path: Path) -> AbstractContextManager[None]:
    """Reports a file of the cache that cannot be read."""
    failure = f"feature cache file '{path}' is missing or damaged: {{reason}}"
    return reported_as(failure, (OSError, SafetensorError))


def _rows(path: Path) -> int:
    """Rows of a shard, from its header; the header must agree with the size of the file."""
    with readable(path), safe_open(path, framework="pt") as shard:
        return int(shard.get_slice("index").get_shape()[0])


def index_of(path: Path) -> Tensor:
    """The rows ``[n] int64`` that a shard holds.

    Raises:
        UserError: it is missing, or cut short.
    """
    with readable(path), safe_open(path, framework="pt") as shard:
        return shard.get_tensor("index")


def checksum(path: Path) -> str:
    """XXH3 (128 bits, hex) of a file: about a tenth of the time that reading the rows takes.

    Raises:
        UserError: the file is missing or cannot be read.
    """
    with readable(path), path.open("rb") as file:
        return hashlib.file_digest(file, xxhash.xxh3_128).hexdigest()


def verify(record: BankRecord, path: Path) -> None:
    """Compares a file of a folder with the checksum in the folder's manifest.

    Raises:
        UserError: the file is missing, or its content is not what was written.
    """
    if checksum(path) != record.checksums.get(path.name):
        raise UserError(
            f"feature cache file '{path}' is damaged: its content is not what was written"
        )


def seal(folder: Path, n: int, record: BankRecord) -> BankRecord:
    """Writes the manifest that makes a folder complete.

    Raises:
        UserError: the shards do not hold ``n`` rows.
    """
    checksums = {path.name: checksum(path) for path in sorted(folder.glob("*.safetensors"))}
    shards = {path.name: _rows(path) for path in sorted(folder.glob("*-of-*.safetensors"))}
    if sum(shards.values()) != n:
        raise UserError(
            f"feature extraction wrote {sum(shards.values())} rows for {n} images: run it with a "
            "Trainer that visits every image once (use_distributed_sampler=True, one file system "
            "for all nodes)"
        )
    files = {"n": n, "shards": shards, "checksums": checksums}
    sealed = record.model_copy(update=files)
    text = sealed.model_dump_json(indent=2, exclude_defaults=True)
    (folder / MANIFEST).write_text(text, encoding="utf-8")
    return sealed


def check(folder: Path) -> BankRecord:
    """Reads the manifest and the headers of all shards, not their contents.

    Headers show a truncated file, which is what a full disk or a crash of the machine leaves:
    this is why nothing here waits for the disk with ``fsync``.

    Raises:
        UserError: a file is missing, truncated or does not hold the rows the manifest says.
    """
    path = folder / MANIFEST
    problem = f"feature cache manifest '{path}' is missing or damaged"
    with reported_as(problem, (OSError, ValueError)):
        record = BankRecord.model_validate_json(path.read_bytes())
    for name, rows in record.shards.items():
        if _rows(folder / name) != rows:
            raise UserError(f"feature cache shard '{folder / name}' does not hold {rows} rows")
    if not record.n == sum(record.shards.values()) > 0:
        raise UserError(f"feature cache manifest '{path}' is damaged: its shards do not add up")
    return record


def gather(folder: Path) -> Tensors:
    """Reads all shards into one tensor per name, row ``i`` at position ``i``.

    Shards are memory-mapped and copied row by row into place, so that the peak is the result
    itself, or less: large results are mapped files (:func:`ood_lab.features.row_shards.roomy`).
    Each shard is compared with its checksum just before, so that the disk is read once. 16-bit
    floats become float32.

    Raises:
        UserError: a shard is damaged, or the rows are not ``0 .. n - 1`` once each.
    """
    record = check(folder)
    n = record.n
    tensors: Tensors = {}
    seen = torch.zeros(n, dtype=torch.bool)
    for name in record.shards:
        verify(record, folder / name)
        with safe_open(folder / name, framework="pt") as shard:
            index = shard.get_tensor("index")
            if index.min() < 0 or index.max() >= n or seen[index].any():
                raise UserError(
                    f"feature cache shard '{folder / name}' is damaged: delete '{folder}'"
                )
            seen[index] = True
            for key in shard.keys():  # noqa: SIM118 - a safetensors handle is not a mapping
                values = shard.get_tensor(key)
                if key not in tensors:
                    tensors[key] = roomy((n, *values.shape[1:]), values.dtype, folder)
                tensors[key][index] = values
    if not seen.all():
        raise UserError(f"feature cache '{folder}' repeats rows and lacks others: delete it")
    return tensors
