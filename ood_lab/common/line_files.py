"""Files that grow by lines: nothing that was written is ever written again.

Of the libraries for JSON Lines, none appends under a lock, or closes a line that was cut short.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ood_lab.common.files import share, write_text


def create_with(path: Path, text: str) -> None:
    """Makes a file that holds ``text``, whole, unless there is a file of that name already.

    Of several processes that try at once, one makes the file; none sees half of it.
    """
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        share(temporary)  # mkstemp keeps the file to its owner
        with suppress(FileExistsError):
            os.link(temporary, path)  # a rename would replace what another process has made
    finally:
        os.unlink(temporary)


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Appends each line, without its newline, as soon as it comes; they outlive a killed process.

    Processes take turns under the lock of the file, which the operating system frees when one
    dies. What a killed process or a full disk left unfinished at the end stays a line of its own.
    """
    with path.open("a+b") as file:
        for line in lines:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                start = b"" if _ends_well(file.fileno()) else b"\n"
                file.write(start + line.encode("utf-8", "backslashreplace") + b"\n")
                file.flush()
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)
        os.fsync(file.fileno())


def append_record(path: Path, record: Mapping[str, Any]) -> None:
    """Appends a JSON object as a line of a file, which is made if missing."""
    create_with(path, "")
    append_lines(path, [json.dumps(record)])


def write_records(records: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Writes JSON objects, one per line, whole or not at all."""
    write_text("".join(f"{json.dumps(record)}\n" for record in records), path)


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file, one per line, without lines that hold none (half of one, say)."""
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record


def _ends_well(descriptor: int) -> bool:
    """True where the next line can begin: after a newline, or in an empty file."""
    size = os.fstat(descriptor).st_size
    return size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"
