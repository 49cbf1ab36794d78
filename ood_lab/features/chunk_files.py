"""A chunk of images, and the file in which a run keeps the fastest one for the next."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ood_lab.common.errors import UserError
from ood_lab.common.files import read_json, write_text

log = logging.getLogger(__name__)


class Chunk(NamedTuple):
    """Images that go through the network together, and how they are in memory."""

    size: int
    channels_last: bool = False

    @property
    def memory_format(self) -> torch.memory_format:
        """PyTorch's own word."""
        return torch.channels_last if self.channels_last else torch.contiguous_format

    def describe(self) -> dict[str, int | str]:
        """For manifests."""
        return {"chunk": self.size, "memory_format": str(self.memory_format).split(".")[-1]}


class ChunkFile:
    """What was found fast for one kind of work on one machine.

    Args:
        folder: of all such files.
        of: what it was found for; another description is another file.
    """

    def __init__(self, folder: Path, of: dict[str, Any]) -> None:
        name = hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:16]
        self._path, self._of = folder / f"{name}.json", of

    def read(self) -> tuple[Chunk, int] | None:
        """The chunk, and how many runs have begun and ended with it; None where there is none."""
        if not self._path.is_file():
            return None
        try:
            found = read_json(self._path)
            chunk = Chunk(max(1, int(found["chunk"])), found["memory_format"] == "channels_last")
            return chunk, int(found["confirmed"])
        except (UserError, KeyError, TypeError, ValueError):
            log.warning("'%s' is damaged: the search for a fast chunk begins again", self._path)
            return None

    def write(self, chunk: Chunk, confirmed: int) -> None:
        """Replaces what was there; a disk that is full costs no more than a warning."""
        content = {**chunk.describe(), "confirmed": confirmed, "of": self._of}
        try:
            write_text(json.dumps(content, indent=2), self._path)
        except OSError as error:
            log.warning("%s: the next run searches for a fast chunk again", error)


def machine(device: torch.device) -> dict[str, Any]:
    """What decides the speed of a network, except itself and its images."""
    info = Path("/proc/cpuinfo")  # platform.processor() says nothing on Linux
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "torch": torch.__version__,
    }
