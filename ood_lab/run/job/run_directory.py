"""The run folder: ``outputs/<name>/<config hash>/seed=<s>/``, exclusive, finished by ``DONE``."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ood_lab.common.errors import UserError
from ood_lab.common.file_records import recorded
from ood_lab.common.files import try_lock
from ood_lab.common.installed_packages import package_versions
from ood_lab.schema.finished_run import FinishedRun
from ood_lab.schema.run_record import MANIFEST, Facts
from ood_lab.scripts import HOME

PACKAGES = ("ood_lab", "torch", "torchvision", "lightning", "timm", "open_clip_torch", "numpy")
#: Endings of the files of a run folder that later commands read.
_READ_BACK = (".csv", ".json", ".jsonl", ".parquet", ".yaml")


@dataclass
class RunFolder:
    """One run's directory, made by :meth:`open`. Two processes never write the same one."""

    path: Path
    _lock: IO[str] | None = None

    @property
    def done(self) -> bool:
        """True once the run has finished."""
        return FinishedRun(self.path).done

    def open(self, only_read: bool = False) -> None:
        """Creates and locks the folder; to be ``only_read``, it need not be writable.

        The lock is the operating system's, so a killed run leaves none behind.

        Raises:
            UserError: another process is running this very configuration, or the folder cannot
                be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / ".lock").open("w")
        except OSError as error:
            if only_read:
                return
            raise UserError(
                f"cannot write the run folder {self.path} ({error.strerror}): set "
                "paths.outputs=DIR to a place you may write"
            ) from error
        if not try_lock(self._lock):
            raise UserError(
                f"another process is running this configuration in {self.path}; "
                "wait for it, or change name= or seed="
            )

    def records(self) -> dict[str, Facts]:
        """Sizes and hashes of the files that later commands read, for the record."""
        tables = (file for file in self.path.iterdir() if file.suffix in _READ_BACK)
        files = [file for file in tables if file.is_file() and file.name != MANIFEST]
        return recorded(self.path, [*files, *self.path.glob("checkpoints/*.ckpt")])

    def empty(self) -> None:
        """Removes what is in the folder."""
        for entry in self._entries():
            remove(entry)

    def set_aside(self, reason: str) -> Path:
        """Moves what is in the folder to ``<its name>.replaced-<time>``, where it counts as no run.

        Instead of ``DONE`` it has a file ``REPLACED`` with the reason, so neither comparisons
        nor a later call take it for a finished run.
        """
        target = self.path.with_name(f"{self.path.name}.replaced-{time.strftime('%Y%m%dT%H%M%S')}")
        while target.exists():
            target = target.with_name(f"{target.name}-again")
        target.mkdir()
        (target / "REPLACED").write_text(f"{reason}\n", encoding="utf-8")
        (self.path / "DONE").unlink(missing_ok=True)  # first: half a run is not a finished one
        for entry in self._entries():
            os.replace(entry, target / entry.name)
        return target

    def _entries(self) -> list[Path]:
        return [entry for entry in self.path.iterdir() if entry.name != ".lock"]

    def close(self) -> None:
        """Releases the lock."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def remove(path: Path) -> None:
    """Removes a file, a folder with all that it holds, or a link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def environment() -> Facts:
    """Versions, git commit and machine, for the record."""
    return {
        "versions": {**package_versions(PACKAGES), "python": platform.python_version()},
        "git": _git_commit(),
        "machine": platform.platform(),
    }


def _git_commit() -> str | None:
    """Commit of the project's clone, with ``+`` when files were changed; None outside one."""
    if not (HOME / ".git").exists():  # installed: a repository further up is somebody else's
        return None
    command = ["git", "-C", str(HOME), "describe", "--always", "--dirty=+", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
