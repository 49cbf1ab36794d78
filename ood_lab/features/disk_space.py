"""Room on the disk, and locks between processes."""

from __future__ import annotations

import logging
import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor

from ood_lab.common.errors import UserError
from ood_lab.common.files import DISK_FULL

log = logging.getLogger(__name__)

#: Bytes from which a tensor of a bank is a mapped file.
MAPPED = 2**30


def base_bytes(n: int, features: int, classes: int, dtype: torch.dtype) -> int:
    """Bytes of ``n`` rows of features, float32 logits, index and label."""
    return n * (features * dtype.itemsize + classes * 4 + 16)


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
        full = getattr(error, "errno", None) in DISK_FULL or "os error 28" in str(error)
        remedy = "make room, and the same command resumes; or " if full else ""
        raise UserError(
            f"cached features cannot be written under '{root}' ({error}): {remedy}choose another "
            "folder"
        ) from error
