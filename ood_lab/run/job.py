"""One job: everything its configuration describes, built when first asked for."""

from __future__ import annotations

import copy
import inspect
import io
import json
import logging
import re
import time
from collections.abc import Sequence
from contextlib import redirect_stderr
from functools import cached_property
from pathlib import Path
from typing import Any

import lightning as L
from hydra.errors import HydraException
from hydra.utils import get_class, get_method, get_object, instantiate
from lightning.fabric.utilities.rank_zero import _get_rank
from lightning.pytorch.loggers import Logger
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from ood_lab.clip import ClipModel
from ood_lab.data.datamodule import OODDataModule
from ood_lab.detectors import Detector
from ood_lab.errors import UserError
from ood_lab.features.progress import ExtractionProgressBar
from ood_lab.models import Backbone, EpochSeed, saved_labels, train_transform
from ood_lab.run import checkpoints
from ood_lab.run.folder import RunFolder, environment
from ood_lab.run.wandb_log import log_results
from ood_lab.tasks import Tuning, show_run

log = logging.getLogger(__name__)


class Job:
    """The objects of one configuration, built once and on demand.

    A task (``cfg.task``) is a function; it is handed the attributes that its parameters name.

    Args:
        cfg: the composed configuration.
        folder: the run folder, open and locked on the main process.
    """

    def __init__(self, cfg: DictConfig, folder: RunFolder) -> None:
        self.cfg = cfg
        self.run_folder = folder
        self.manifest: dict[str, Any] = {"config_hash": folder.path.parent.name, **environment()}

    @property
    def is_main(self) -> bool:
        """True on the process that writes (rank 0)."""
        return not _get_rank()

    @property
    def seed(self) -> int:
        """The seed of this run."""
        return int(self.cfg.seed)

    @property
    def features_root(self) -> Path:
        """Folder of all feature banks."""
        return Path(self.cfg.paths.features)

    @property
    def model(self) -> dict[str, Any]:
        """The resolved ``model`` node."""
        return dict(self.settings["model"])

    @property
    def metrics(self) -> dict[str, Any]:
        """The resolved ``metrics`` node."""
        return dict(self.settings["metrics"])

    @property
    def shift(self) -> dict[str, Any]:
        """The resolved ``shift`` node."""
        return dict(self.settings["shift"])

    @property
    def folder(self) -> Path:
        """The run folder's path."""
        return self.run_folder.path

    @property
    def settings(self) -> dict[str, Any]:
        """The resolved configuration as plain Python."""
        settings = OmegaConf.to_container(self.cfg, resolve=True)
        assert isinstance(settings, dict)
        return {str(key): value for key, value in settings.items()}

    def build(self, key: str, **arguments: Any) -> Any:
        """Instantiates the configuration node ``key``; errors name the node."""
        node = OmegaConf.select(self.cfg, key)
        try:
            return instantiate(node, **arguments, _convert_="all")
        except HydraException as error:
            if isinstance(error.__cause__, UserError):
                raise error.__cause__ from error
            reason = " ".join(str(error.__cause__ or error).split())
            if unknown := re.search(r"unexpected keyword argument '(\w+)'", reason):
                raise UserError(
                    f"'{key}.{unknown[1]}' is nothing that {node['_target_']} takes: leave it out, "
                    f"or choose another {key.split('.')[0]}=..."
                ) from error
            raise UserError(f"cannot build '{key}': {reason}") from error

    @cached_property
    def data(self) -> OODDataModule:
        """The DataModule, set up and checked."""
        data: OODDataModule = self.build("data")
        data.setup()
        if self.is_main:
            Console().print(data.report)
            data.save_splits(self.folder / "splits")
        return data

    def open_data(self) -> OODDataModule:
        """:attr:`data`, for a task that may do without: nothing is read before the call."""
        return self.data

    @cached_property
    def backbone(self) -> Backbone:
        """The backbone with its weights, for the classes of the data."""
        return self.load_backbone(self.data.classes)

    @property
    def _keeps_its_head(self) -> bool:
        """Weights that come with their own classes keep them."""
        return bool(self.cfg.model.pretrained or self.cfg.model.weights) and not self.cfg.ckpt

    def load_backbone(self, classes: Sequence[str]) -> Backbone:
        """The backbone with its weights; its head is for ``classes`` unless it keeps its own."""
        given = self.cfg.model.backbone.num_classes
        file = checkpoints.weights_file(Path(self.cfg.ckpt)) if self.cfg.ckpt else None
        num_classes = given or (None if self._keeps_its_head else len(classes))
        backbone: Backbone = self.build(
            "model.backbone", num_classes=num_classes, **self._label_space(file, classes)
        )
        if file:
            checkpoints.check_classes(Path(self.cfg.ckpt), classes)
            backbone.load(file)
        elif not (self.cfg.model.pretrained or self.cfg.model.weights):
            raise UserError(
                "this backbone has no weights: give ckpt=<run folder or file>, "
                "model.weights=FILE or model.pretrained=true, or train one with train.py"
            )
        return backbone

    def backbone_of(self, run: str) -> Backbone:
        """The backbone of another run, with its weights, for the classes of this job's data.

        Raises:
            UserError: no run is there, it has no weights, or was trained on other classes.
        """
        other = copy.copy(self)  # of the same data, which is set up once
        other.cfg = checkpoints.with_model_of(self.cfg, Path(run))
        return other.load_backbone(self.data.classes)

    def _label_space(self, file: Path | None, classes: Sequence[str]) -> dict[str, Any]:
        """What the network's builder asks for: class names for texts, label sizes for heads.

        A checkpoint says what its network was built for, so that no data is needed.
        """
        target = get_object(self.cfg.model.backbone["_target_"])
        wanted = inspect.signature(target).parameters
        known: dict[str, Any] = {"classes": list(classes)} if "classes" in wanted else {}
        if "labels" in wanted:
            saved = saved_labels(file) if file else None
            known["labels"] = saved or self.data.labels.plain()
        return known

    @cached_property
    def clip(self) -> ClipModel:
        """The CLIP of ``clip=...``."""
        clip: ClipModel = self.build("clip")
        return clip

    @property
    def trains(self) -> bool:
        """Whether train.py fits the model on the data; else the task does its own training."""
        return self.cfg.model.classifier is not None

    def classifier(self) -> L.LightningModule:
        """The LightningModule to train, with a head for the classes of the data."""
        backbone: Backbone = self.build(
            "model.backbone",
            num_classes=len(self.data.classes),
            **self._label_space(None, self.data.classes),
        )
        if self.cfg.ckpt:
            backbone.load(checkpoints.weights_file(Path(self.cfg.ckpt)))
        self.data.use_transform(
            train=train_transform(
                backbone, self.build("model.augment"), self.build("model.geometry")
            ),
            eval=backbone.transform,
        )
        module: L.LightningModule = self.build("model.classifier")(backbone=backbone)
        return module

    def finish_training(self, module: L.LightningModule) -> None:
        """Continues with the best weights of the training that has just ended."""
        backbone: Backbone = module.backbone  # type: ignore[assignment]
        backbone.load(checkpoints.weights_file(self.folder))
        self.__dict__["backbone"] = backbone
        accuracy = checkpoints.val_accuracy(module.trainer)
        self.manifest |= {} if accuracy is None else {"val_accuracy": accuracy}

    @property
    def last_checkpoint(self) -> Path | None:
        """Where an interrupted training of this very run goes on; None for a fresh one."""
        last = checkpoints.folder(self.folder) / "last.ckpt"
        return last if last.exists() else None

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
        with redirect_stderr(io.StringIO()):  # Lightning passes W&B an option that W&B warns of
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
        callbacks.append(EpochSeed(self.seed))
        trainer: L.Trainer = self.build("trainer", callbacks=callbacks, logger=self.loggers)
        return trainer

    def _callback_arguments(self, name: str) -> dict[str, str]:
        target = get_class(self.cfg.callbacks[name]["_target_"])
        wants = "dirpath" in inspect.signature(target).parameters
        return {"dirpath": str(checkpoints.folder(self.folder))} if wants else {}

    @cached_property
    def extractor(self) -> L.Trainer:
        """The Trainer that extracts features: same devices, no logger, no checkpoint."""
        trainer: L.Trainer = self.build(
            "trainer",
            callbacks=[ExtractionProgressBar()] if self.cfg.callbacks else [],
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            inference_mode=False,  # ODIN differentiates with respect to the image
        )
        return trainer

    def dry_trainer(self) -> L.Trainer:
        """A Trainer as configured, without callbacks and loggers: can this machine serve it?"""
        trainer: L.Trainer = self.build("trainer", logger=False, enable_checkpointing=False)
        return trainer

    def check_task(self) -> None:
        """Calls the task's ``_check_``, where it has one: its errors come before any long work."""
        if "_check_" in self.cfg.task:
            function = get_method(self.cfg.task["_check_"])
            function(
                **{name: getattr(self, name) for name in inspect.signature(function).parameters}
            )

    def run_task(self) -> Any:
        """Calls ``cfg.task`` with the objects its parameters name and logs what it returns."""
        node = {k: v for k, v in self.settings["task"].items() if not k.startswith("_")}
        function = get_method(self.cfg.task["_target_"])
        names = inspect.signature(function).parameters
        provided = {n: getattr(self, n) for n in names if n not in node}
        loggers = self.loggers  # from here on, a failure is a failed W&B run
        results = function(**provided, **node)
        if self.is_main and results is not None:
            log_results(loggers, results, self.folder)
        return results

    @property
    def finished(self) -> bool:
        """True when this very configuration has been run before; it is not repeated."""
        if self.run_folder.done:
            log.info(
                "already done on %s: %s", (self.folder / "DONE").read_text().strip(), self.folder
            )
            log.info("these are its results; force=true runs it again")
            show_run(self.folder)
        return self.run_folder.done

    def close(self) -> None:
        """Marks the run as finished."""
        if self.is_main:
            self.manifest["finished"] = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            self.run_folder.write("manifest.json", json.dumps(self.manifest, indent=2, default=str))
            self.run_folder.write("DONE", self.manifest["finished"] + "\n")
            log.info("everything lies in %s", self.folder)
