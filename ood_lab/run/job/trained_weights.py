"""Weights as an artefact of what trains them: ``<paths.weights>/<key>/seed=<s>/``."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig, OmegaConf

from ood_lab.common.arguments import Settings
from ood_lab.common.errors import reported_as
from ood_lab.common.file_records import damaged, json_sha256, recorded
from ood_lab.common.files import lock, read_json, write_text
from ood_lab.common.grouping import without_keys
from ood_lab.run.building import checkpoints
from ood_lab.run.job.run_directory import remove
from ood_lab.run.job.run_identity import telling
from ood_lab.schema.run_record import Facts

if TYPE_CHECKING:
    from ood_lab.data.datamodules.base import OODDataModule

log = logging.getLogger(__name__)
RECORD = "manifest.json"
#: Groups of the configuration that no training reads. What they change in others, as the classes
#: that ``synthetic_ood`` holds out of the data, is in the key on its own.
EVALUATION = (
    "task",
    "detector",
    "detector_preset",
    "tuning",
    "report_by",
    "metrics",
    "synthetic_ood",
    "clip",
    "annotations",
    "image_text",
    "concepts",
    "generator",
    "judge",
    "reader",
    "lvlm",
)
#: Sets that a training reads, where the data has them.
_READ = ("train", "val", "outliers")


def training_key(settings: Settings, data: OODDataModule, files: list[tuple[str, ...]]) -> str:
    """First 10 hex digits of the SHA-256 of everything that can change the weights.

    Args:
        settings: the resolved configuration.
        data: set up.
        files: names and hashes of the files that the settings name outside of the data.
    """
    told = without_keys(telling(settings), (*EVALUATION, "ckpt"))
    sets = {name: data.splits[name].identity for name in _READ if name in data.splits}
    facts = [told, sets, data.classes, vars(data.labels), str(data.image_size), files]
    return json_sha256(facts)[:10]


@dataclass
class TrainedWeights:
    """The folder of one training. Runs that differ only in their evaluation share it."""

    path: Path

    @property
    def record(self) -> Facts:
        """What is known of the finished training; empty until then."""
        return read_json(self.path / RECORD) if (self.path / RECORD).exists() else {}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Waits until no other process trains these weights, and keeps others waiting.

        Raises:
            UserError: the folder cannot be written.
        """
        with reported_as(
            f"cannot write the weights to {self.path} ({{reason}}): set paths.weights=DIR to a "
            "place you may write",
            OSError,
        ):
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / ".lock").open("w")
        with file:
            lock(file, f"another process trains the same weights in {self.path}: waiting")
            yield

    def prepare(self, run: Path, anew: bool) -> None:
        """Makes the run's ``checkpoints`` lead here, and removes what is damaged.

        Args:
            run: the run folder.
            anew: keep nothing of an earlier training.
        """
        if anew:
            self._empty()
        elif found := next(damaged(self.path, self.record.get("files", {})), None):
            log.warning("%s: the weights are trained again from the start", found)
            self._empty()
        here, there = checkpoints.folder(run), checkpoints.folder(self.path)
        there.mkdir(exist_ok=True)
        remove(here)
        here.symlink_to(os.path.relpath(there.absolute(), run.absolute()))

    def finish(self, cfg: DictConfig, facts: Facts) -> None:
        """Notes that the training has ended, with ``facts`` about it."""
        write_text(OmegaConf.to_yaml(cfg, resolve=True), self.path / "config.yaml")
        files = recorded(self.path, checkpoints.folder(self.path).rglob("*.ckpt"))
        write_text(json.dumps({**facts, "files": files}, indent=2), self.path / RECORD)

    def give_to(self, run: Path) -> None:
        """Puts the checkpoints in a run folder, which is then complete if only it is moved."""
        here, made = checkpoints.folder(run), run / ".checkpoints"
        remove(made)
        shutil.copytree(checkpoints.folder(self.path), made, copy_function=_linked)
        remove(here)
        os.replace(made, here)

    def _empty(self) -> None:
        (self.path / RECORD).unlink(missing_ok=True)
        remove(checkpoints.folder(self.path))


def _linked(source: str, target: str) -> None:
    """A second name of the file; a copy where the file system has none."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
