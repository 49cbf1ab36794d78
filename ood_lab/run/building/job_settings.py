"""The configuration of a job, and what is known before anything is built from it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from ood_lab.common.files import read_config
from ood_lab.common.stage_times import Stages
from ood_lab.run.building import checkpoints
from ood_lab.run.building.task_groups import made_of, uses_of
from ood_lab.run.commandline.composition import plain, running_overrides, trains
from ood_lab.run.commandline.override_values import key_of
from ood_lab.run.job import input_files
from ood_lab.run.job.process_start import is_main
from ood_lab.run.job.run_directory import RunFolder, environment
from ood_lab.schema.run_record import RunRecord


class JobSettings:
    """The configuration of a job, and what is known before anything is built from it.

    Args:
        cfg: the composed configuration.
        run_folder: open and locked on the main process.
        recipe: the file that gave a method its settings, in words; None if none did.
        unused: groups of the configuration that neither the task nor another group reads.

    Attributes:
        record: facts about how the numbers were made, added by whatever code knows them.
    """

    def __init__(
        self,
        cfg: DictConfig,
        run_folder: RunFolder,
        recipe: str | None = None,
        unused: frozenset[str] = frozenset(),
    ) -> None:
        self.cfg = cfg
        self.unused = unused
        self.run_folder = run_folder
        self.record = RunRecord(
            config_hash=run_folder.path.parent.name, recipe=recipe, **environment()
        )
        #: How long each stage took.
        self.stages = Stages()
        #: Why the run is not finished though its task has ended; the same command goes on.
        self.unfinished: str | None = None

    #: True where a training is repeated though its weights are there.
    anew = False

    @property
    def code(self) -> str:
        """Version and commit of this package."""
        return f"{self.record.versions['ood_lab']} {self.record.git}"

    @property
    def is_main(self) -> bool:
        """True on the process that writes (rank 0)."""
        return is_main()

    @property
    def seed(self) -> int:
        """Seed of the bootstrap and of every random choice."""
        return int(self.cfg.seed)

    @cached_property
    def model_seed(self) -> int:
        """The seed with which the evaluated weights were trained; the run's own if unknown."""
        run = self._run_of_weights
        return int(read_config(run)["seed"]) if run else self.seed

    @cached_property
    def trained_on(self) -> tuple[str, list[str]] | None:
        """Identity and addresses of the images that ``ckpt`` was trained on; None if unknown."""
        run = self._run_of_weights
        return input_files.training_images(run) if run else None

    @property
    def _run_of_weights(self) -> Path | None:
        """The run that ``ckpt`` is of."""
        ckpt = self.cfg.get("ckpt")
        return checkpoints.run_of(Path(ckpt)) if ckpt else None

    @property
    def folder(self) -> Path:
        """The run folder's path."""
        return self.run_folder.path

    @property
    def features_root(self) -> Path:
        """Folder of all feature banks."""
        return Path(self.cfg.paths.features)

    @property
    def answers_root(self) -> Path:
        """Folder of the answers of all vision-language models."""
        return Path(self.cfg.paths.answers)

    @cached_property
    def _resolved(self) -> dict[str, Any]:
        return plain(self.cfg)

    @property
    def settings(self) -> dict[str, Any]:
        """The resolved configuration as plain Python; a copy, which its reader may change."""
        return copy.deepcopy(self._resolved)

    @made_of("model", "ckpt")
    def model(self) -> dict[str, Any]:
        """The resolved ``model`` node."""
        return dict(self.settings["model"])

    @made_of("metrics")
    def metrics(self) -> dict[str, Any]:
        """``fpr95_positive``, ``n_bootstrap`` and ``min_count``."""
        return dict(self.settings["metrics"])

    @property
    def resampling(self) -> dict[str, Any]:
        """``draws`` and ``seed`` of the bootstrap."""
        return {"draws": int(self.metrics["n_bootstrap"]), "seed": self.seed}

    @made_of("report_by")
    def report_by(self) -> dict[str, Any]:
        """The resolved ``report_by`` node."""
        return dict(self.settings["report_by"])

    @cached_property
    def trains(self) -> bool:
        """True if train.py fits the model on the data; otherwise the task does its own training."""
        return trains(self.cfg)

    @cached_property
    def uses(self) -> frozenset[str]:
        """The members of this workspace that the task uses."""
        return uses_of(self.settings["task"])

    @property
    def detectors_chosen(self) -> bool:
        """True if the command line or an experiment chooses the detectors, the default too."""
        typed = any(key_of(o) == "detector" for o in running_overrides())
        return typed or HydraConfig.get().runtime.choices.get("detector") != "default"

    def _note_inputs(self, identities: Mapping[str, str]) -> None:
        input_files.note(self.folder, self.settings, self.code, identities)
