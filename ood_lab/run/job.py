"""One job: everything its configuration describes, built when first asked for."""

from __future__ import annotations

import inspect
import io
import json
import logging
import math
import time
from contextlib import redirect_stderr
from functools import cached_property
from pathlib import Path
from typing import Any

import lightning as L
from hydra.utils import get_class, get_method
from lightning.pytorch.callbacks import ProgressBar
from lightning.pytorch.loggers import Logger
from omegaconf import OmegaConf
from rich import get_console

from ood_lab.detectors import Detector
from ood_lab.errors import UserError
from ood_lab.features.progress import ExtractionLog, ExtractionProgressBar
from ood_lab.models import EpochSeed, TrainingLog, epochs_for, total_steps
from ood_lab.run import checkpoints, inputs
from ood_lab.run.machine import check_machine
from ood_lab.run.networks import Networks
from ood_lab.run.wandb_log import log_results
from ood_lab.run.wandb_login import check_login, refusals_explained
from ood_lab.tasks import Tuning, Workplace, show_run

log = logging.getLogger(__name__)


class Job(Networks):
    """The objects of one configuration, built once and on demand.

    A task (``cfg.task``) is a function; it is handed the attributes that its parameters name.
    """

    @property
    def place(self) -> Workplace:
        """This job, as far as tasks over images need it."""
        return self

    @property
    def last_checkpoint(self) -> Path | None:
        """Where an interrupted training of this very run goes on; None for a fresh one."""
        return checkpoints.to_resume(self.folder)

    @cached_property
    def detectors(self) -> dict[str, Detector]:
        """The chosen detectors, by the key of their YAML."""
        names = map(str, self.cfg.get("detector") or {})
        detectors = {name: self._detector(name) for name in names}
        if not detectors:
            raise UserError("no detector chosen: set detector=[knn,vim] or leave it at all of them")
        return detectors

    def _detector(self, name: str, **settings: Any) -> Detector:
        """The detector of that YAML, ``settings`` in place of the YAML's."""
        detector: Detector = self.build(f"detector.{name}", **settings)
        detector.name = name
        return detector

    @property
    def tuning(self) -> Tuning:
        """How detector settings are chosen."""
        return Tuning(**self.settings["tuning"], build=self._detector)

    @cached_property
    def loggers(self) -> list[Logger]:
        """Experiment loggers; they live in the run folder."""
        if not self.is_main:
            return []
        nodes = [f"logger.{name}" for name in self.cfg.logger or {}]
        # Lightning passes W&B an option that W&B warns of.
        with refusals_explained(), redirect_stderr(io.StringIO()):
            loggers = [self.build(node, save_dir=str(self.folder)) for node in nodes]
            for logger in loggers:
                logger.log_hyperparams(self.settings)
        return loggers

    def trainer(self) -> L.Trainer:
        """The Trainer that fits; its checkpoints lie in the run folder."""
        callbacks = [
            self.build(f"callbacks.{name}", **self._callback_arguments(name))
            for name in self.cfg.callbacks or {}
        ]
        callbacks += [EpochSeed(self.seed), self.training_log]
        return self._trainer(callbacks, logger=self.loggers, **self._length())

    def _trainer(self, callbacks: list[L.Callback], **settings: Any) -> L.Trainer:
        """A Trainer as configured; the only bars are those of ``callbacks``, on a terminal."""
        bars = [callback for callback in callbacks if isinstance(callback, ProgressBar)]
        if not get_console().is_terminal:
            for bar in bars:
                bar.disable()
        if not bars:
            settings["enable_progress_bar"] = False
        if not self._has_length:
            settings.setdefault("max_epochs", 1)  # nothing is trained
        trainer: L.Trainer = self.build("trainer", callbacks=callbacks, **settings)
        return trainer

    def _callback_arguments(self, name: str) -> dict[str, str]:
        target = get_class(self.cfg.callbacks[name]["_target_"])
        wants = "dirpath" in inspect.signature(target).parameters
        return {"dirpath": str(checkpoints.folder(self.folder))} if wants else {}

    def _length(self) -> dict[str, int]:
        """The number of epochs, where the configuration leaves it to the size of the data."""
        if self._has_length:
            return {}
        batches = self.data.batches_per_epoch(self.dry_trainer().world_size)
        batches = math.ceil(batches / self.cfg.trainer.get("accumulate_grad_batches", 1))
        return {"max_epochs": epochs_for(batches, **self.settings["auto_length"])}

    @property
    def _has_length(self) -> bool:
        """Whether the configuration says when a training ends."""
        ends = (self.cfg.trainer.get(key) for key in ("max_epochs", "max_steps", "max_time"))
        return any(end is not None for end in ends)

    @cached_property
    def training_log(self) -> TrainingLog:
        """Tells about the training."""
        enough = self.settings.get("auto_length", {}).get("min_steps", 0)
        return TrainingLog(str(self.cfg.model.name), self.weights_origin, enough)

    def finish_training(self, module: L.LightningModule) -> None:
        """Notes down how long the training was, and continues with its best weights."""
        trainer = module.trainer
        self.manifest["training"] = {"epochs": trainer.current_epoch, "steps": total_steps(trainer)}
        if warning := self.training_log.warning(trainer):
            self.manifest["warnings"] = [warning]
        self.take_best(module)

    @cached_property
    def extractor(self) -> L.Trainer:
        """The Trainer that extracts features: same devices, no logger, no checkpoint."""
        callbacks: list[L.Callback] = [ExtractionLog()]
        callbacks += [ExtractionProgressBar()] if self.cfg.callbacks else []
        return self._trainer(
            callbacks,
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            inference_mode=False,  # ODIN differentiates with respect to the image
        )

    def dry_trainer(self) -> L.Trainer:
        """A Trainer as configured, without callbacks and loggers: can this machine serve it?"""
        return self._trainer([], logger=False, enable_checkpointing=False)

    def check_settings(self) -> None:
        """What can be known of the settings before anything is built.

        Raises:
            UserError: a switch that is none, a Trainer that this machine cannot serve, or a W&B
                account that is not there.
        """
        settings = self.settings
        if not isinstance(self.cfg.force, bool):  # `no` is a text, and as such true
            raise UserError(f"force={self.cfg.force}: give true or false")
        if self.trains or {"trainer", "place", "extractor"}.intersection(self.wanted):
            check_machine(settings["trainer"])
            self.dry_trainer()
        if self.is_main:
            check_login(settings["logger"] or {})

    def check_task(self) -> None:
        """Calls the task's ``_check_``, where it has one: its errors come before any long work."""
        if "_check_" in self.cfg.task:
            function = get_method(self.cfg.task["_check_"])
            function(
                **{name: getattr(self, name) for name in inspect.signature(function).parameters}
            )

    @property
    def wanted(self) -> list[str]:
        """Names of the attributes that the task is handed."""
        names = inspect.signature(get_method(self.cfg.task["_target_"])).parameters
        return [name for name in names if name not in self.cfg.task]

    def run_task(self) -> Any:
        """Calls ``cfg.task`` with the objects its parameters name and logs what it returns."""
        node = {k: v for k, v in self.settings["task"].items() if not k.startswith("_")}
        function = get_method(self.cfg.task["_target_"])
        provided = {name: getattr(self, name) for name in self.wanted}
        loggers = self.loggers  # from here on, a failure is a failed W&B run
        results = function(**provided, **node)
        if self.is_main and results is not None:
            log_results(loggers, results, self.folder)
        return results

    def begin(self) -> None:
        """Makes the open folder ready; what other data or weights have made is put aside."""
        if self.cfg.force:
            self.run_folder.empty()
        elif self.changes:
            reason = "; ".join(self.changes)
            log.warning("what %s was made from has changed: %s", self.folder, reason)
            log.warning(
                "starting anew; what was there is kept in %s", self.run_folder.set_aside(reason)
            )
        if self.run_folder.done:
            return
        self.run_folder.write("config.yaml", OmegaConf.to_yaml(self.cfg, resolve=True))
        if not (self.folder / inputs.FILE).exists():
            self.note_inputs({})

    @property
    def done(self) -> bool:
        """Whether this very configuration has been run before, on these data and weights."""
        return self.run_folder.done and not self.cfg.force and not self.changes

    @property
    def finished(self) -> bool:
        """Shows a run that is :attr:`done`, which is not repeated; False for any other."""
        if not self.done:
            return False
        log.info("already done on %s: %s", (self.folder / "DONE").read_text().strip(), self.folder)
        log.info("these are its results; force=true runs it again")
        show_run(self.folder)
        return True

    def close(self) -> None:
        """Marks the run as finished."""
        if self.is_main:
            self.manifest["finished"] = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            self.run_folder.write("manifest.json", json.dumps(self.manifest, indent=2, default=str))
            if self.cfg.debug:
                log.info("this was a debug run, which no other run takes for its own")
            else:
                self.run_folder.write("DONE", self.manifest["finished"] + "\n")
            log.info("everything lies in %s", self.folder)
