"""Sizes and hashes of the files of a folder, and a check that they are still the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ood_lab.common.errors import UserError

#: Bytes above which a file is compared by its size only, as every look at a run compares.
_HASHED = 64 * 2**20


def recorded(folder: Path, files: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """``{path from the folder: {bytes, sha256}}``; large files have no hash."""
    return {str(file.relative_to(folder)): _facts(file) for file in sorted(files)}


def check_recorded(folder: Path, records: Mapping[str, Mapping[str, Any]]) -> None:
    """Compares the files of a folder with :func:`recorded`.

    Raises:
        UserError: a file is missing, cut short or changed; the message names the first one.
    """
    for name, facts in records.items():
        file = folder / name
        if not file.is_file():
            what = "is missing"
        elif (size := file.stat().st_size) != facts["bytes"]:
            what = f"is damaged ({size:,} of {facts['bytes']:,} bytes)"
        elif _facts(file) != facts:
            what = "has changed since the run wrote it"
        else:
            continue
        raise UserError(f"{file} {what}: restore it, or repeat that run with force=true")


def _facts(file: Path) -> dict[str, Any]:
    size = file.stat().st_size
    if size > _HASHED:
        return {"bytes": size, "sha256": None}
    with file.open("rb") as stream:
        return {"bytes": size, "sha256": hashlib.file_digest(stream, "sha256").hexdigest()}
