"""Room on the disk, and locks between processes."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError

from ood_lab.errors import UserError


def try_lock(descriptor: int) -> bool:
    """Takes the exclusive lock of an open file; False when another process has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def require_space(folder: Path, needed: int, what: str) -> None:
    """Refuses to start what the disk cannot hold.

    Raises:
        UserError: fewer than ``needed`` bytes are free where ``folder`` lies.
    """
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if needed > free:
        raise UserError(
            f"{what} needs {needed:,} bytes under '{folder}' but {free:,} are free: free some "
            "space or choose another folder"
        )


def base_bytes(n: int, features: int, classes: int, dtype: torch.dtype) -> int:
    """Bytes of ``n`` rows of features, float32 logits, index and label."""
    return n * (features * dtype.itemsize + classes * 4 + 16)


@contextmanager
def writing(root: Path) -> Iterator[None]:
    """Turns a refusal of the file system into a message about ``root``."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"feature banks cannot be written under '{root}' ({error}): free some space or choose "
            "another folder"
        ) from error
