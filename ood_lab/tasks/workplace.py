"""What most tasks are handed together: the data, and where and with what to work."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import lightning as L

from ood_lab.data.datamodule import OODDataModule


class Workplace(Protocol):
    """The part of a job that a task over images needs; nothing is built before it is asked for.

    Attributes:
        manifest: filled with what made the numbers.
    """

    manifest: dict[str, Any]

    @property
    def data(self) -> OODDataModule:
        """The DataModule, set up."""

    @property
    def extractor(self) -> L.Trainer:
        """Its ``predict`` runs a backbone over images; it may have several devices."""

    @property
    def features_root(self) -> Path:
        """Folder of the feature banks."""

    @property
    def folder(self) -> Path:
        """Run folder."""

    @property
    def metrics(self) -> Mapping[str, Any]:
        """``protocol``, ``draws`` and ``min_count``."""

    @property
    def seed(self) -> int:
        """Of the bootstrap and of every draw."""

    @property
    def model_seed(self) -> int:
        """That the evaluated weights were trained with: in titles, and a column of the results."""

    @property
    def is_main(self) -> bool:
        """False on the other ranks, which only extract."""
