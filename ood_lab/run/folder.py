"""The run folder: ``outputs/<name>/<config hash>/seed=<s>/``, exclusive, finished by ``DONE``."""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

from ood_lab.errors import UserError
from ood_lab.scripts import HOME

log = logging.getLogger(__name__)

#: Top-level keys that change where or how fast a run works, never its numbers.
NEUTRAL_KEYS = ("paths", "logger", "callbacks", "force", "tags", "hydra", "seed", "name", "debug")
#: Keys of the same kind further down.
NEUTRAL_PATHS = (
    ("data", "num_workers"),
    ("data", "cache_dir"),
    ("data", "info"),
)
PACKAGES = ("ood_lab", "torch", "torchvision", "lightning", "timm", "open_clip_torch", "numpy")


def config_hash(config: Mapping[str, Any]) -> str:
    """First 10 hex digits of the sha256 of everything in ``config`` that can change a number."""
    kept = {k: dict(v) if isinstance(v, Mapping) else v for k, v in config.items()}
    for key in NEUTRAL_KEYS:
        kept.pop(key, None)
    for group, key in NEUTRAL_PATHS:
        if isinstance(kept.get(group), dict):
            kept[group].pop(key, None)
    text = json.dumps(kept, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


class RunFolder:
    """One run's directory. Two processes never write the same one.

    Args:
        path: the directory; created by :meth:`open`.
        stamp: of the weights file that is evaluated; a run of other weights is not this run.
    """

    def __init__(self, path: Path, stamp: str | None = None) -> None:
        self.path = path
        self.stamp = stamp
        self._lock: IO[str] | None = None

    @property
    def done(self) -> bool:
        """True once the run has finished, with these very weights."""
        return (self.path / "DONE").exists() and not self._outdated

    @property
    def _outdated(self) -> bool:
        note = self.path / "ckpt_stamp"
        return note.exists() and note.read_text() != self.stamp

    def open(self, force: bool = False) -> None:
        """Creates and locks the folder; ``force`` empties it first.

        The lock is the operating system's, so a killed run leaves none behind.

        Raises:
            UserError: another process is running this very configuration, or the folder cannot
                be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / ".lock").open("w")
        except OSError as error:
            raise UserError(
                f"cannot write the run folder {self.path}: {error.strerror}. "
                "Set paths.outputs=DIR to a place you may write."
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                f"another process is running this configuration in {self.path}; "
                "wait for it, or change name= or seed="
            ) from error
        if self._outdated:
            log.warning("the checkpoint has changed since %s: starting anew", self.path)
        if force or self._outdated:
            self._empty()
        if self.stamp and not (self.path / "ckpt_stamp").exists():
            self.write("ckpt_stamp", self.stamp)

    def _empty(self) -> None:
        for entry in self.path.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry.name != ".lock":
                entry.unlink()

    def close(self) -> None:
        """Releases the lock."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def write(self, name: str, text: str) -> None:
        """Writes a text file that is either whole or absent."""
        temporary = self.path / f".{name}.tmp"
        temporary.write_text(text)
        os.replace(temporary, self.path / name)


def environment() -> dict[str, Any]:
    """Versions, git commit and machine, for the manifest."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "versions": {**versions, "python": platform.python_version()},
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
