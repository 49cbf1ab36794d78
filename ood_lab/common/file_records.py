"""What a file is known again by: its stamp, its ends, and the hashes of a folder."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ood_lab.common.files import StrPath

#: Bytes above which a file is compared by its size only, as every look at a run compares.
_HASHED = 64 * 2**20
#: Bytes at the beginning, and at the end, of a file that is not read whole.
_END = 4096


class Stamp(NamedTuple):
    """What changes when a file is rewritten, or replaced by another of the same name.

    ``cp -p``, ``rsync -a`` and archives keep size and time; ``mv`` keeps the inode as well.

    Attributes:
        bytes: size.
        mtime_ns: time of modification (ns).
        change: follows the inode and the time of its last change, which nobody can set.
    """

    bytes: int
    mtime_ns: int
    change: int


def stamp(path: StrPath) -> Stamp:
    """The stamp of a file, whose content is not read; -1 in all fields where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return Stamp(-1, -1, -1)
    text = f"{status.st_ino} {status.st_ctime_ns}"
    change = int(text_sha256(text)[:14], 16)
    return Stamp(status.st_size, status.st_mtime_ns, change)


def text_sha256(text: str) -> str:
    """sha256 (hex) of a text as UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


def json_sha256(value: Any) -> str:
    """sha256 (hex) of plain values as JSON, whatever the order of keys."""
    return text_sha256(json.dumps(value, sort_keys=True, default=str))


def file_sha256(path: StrPath) -> str:
    """sha256 (hex) of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def ends_sha256(path: str, start: int = 0, size: int | None = None) -> str:
    """sha256 (hex) of the first and last 4 KiB of ``size`` bytes from ``start`` on; None = all."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size - start if size is None else size
        for place in (start, max(start, start + size - _END)):
            file.seek(place)
            digest.update(file.read(min(_END, size)))
    return digest.hexdigest()


def recorded(folder: Path, files: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """``{path from the folder: {bytes, sha256}}``; large files have no hash."""
    return {str(file.relative_to(folder)): _facts(file) for file in sorted(files)}


def damaged(folder: Path, records: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The files that are not as they were :func:`recorded`, each with what is wrong with it."""
    for name, facts in records.items():
        file = folder / name
        if not file.is_file():
            yield f"{file} is missing"
        elif (size := file.stat().st_size) != facts["bytes"]:
            yield f"{file} is damaged ({size:,} of {facts['bytes']:,} bytes)"
        elif _facts(file) != facts:
            yield f"{file} has changed since it was written"


def _facts(file: Path) -> dict[str, Any]:
    size = file.stat().st_size
    return {"bytes": size, "sha256": None if size > _HASHED else file_sha256(file)}
