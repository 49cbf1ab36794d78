"""Checkpoint files that are whole or absent, on any file system."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO

from ood_lab.common.files import share


class WholeCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint to a file in the same folder, and renames that file when it is on disk.

    Lightning writes to ``$TMPDIR`` first. Where that is another file system, it then copies over
    the old checkpoint, and a kill or a full disk during the copy leaves neither.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        """Writes the file; the one before stays until the new one is complete.

        Raises:
            OSError: it cannot be written, as on a full disk.
        """
        if "://" in str(path):
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        # One name for all processes: what a kill leaves behind is overwritten by the next attempt.
        part = target.with_name(f".{target.name}.part")
        content = io.BytesIO()  # torch.save hides the reason why a file cannot be written
        torch.save(checkpoint, content)
        try:
            with part.open("wb") as file:
                file.write(content.getbuffer())
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            part.unlink(missing_ok=True)
            raise
        share(part)
        os.replace(part, target)
        _sync(target.parent)


def _sync(folder: Path) -> None:
    """Writes a folder's new names to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:  # some network file systems cannot
        pass
    finally:
        os.close(descriptor)
