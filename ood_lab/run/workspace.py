"""The objects of one configuration, each built when first asked for."""

from __future__ import annotations

import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from omegaconf import DictConfig, OmegaConf, open_dict

from ood_lab.errors import UserError
from ood_lab.io import read_config, write_text
from ood_lab.run import checkpoints, inputs, nodes
from ood_lab.run.compose import plain, trains
from ood_lab.run.folder import RunFolder, environment
from ood_lab.run.process import rank

if TYPE_CHECKING:
    import lightning as L
    import pandas as pd
    from lightning.pytorch.loggers import Logger

    from ood_lab.clip import ClipModel
    from ood_lab.data.check_report import Finding
    from ood_lab.data.datamodule import OODDataModule
    from ood_lab.detectors import Detector
    from ood_lab.evaluation.tuning import Tuning
    from ood_lab.lvlm.annotations import Annotations
    from ood_lab.lvlm.chat.base import ChatModel
    from ood_lab.lvlm.image_text.base import ImageTextModel
    from ood_lab.models import Backbone, OwnTraining, TrainingLog

log = logging.getLogger(__name__)
Built = TypeVar("Built")

#: Members of the workspace that a task may use, and the groups of the configuration that each is
#: made of; :func:`made_of` fills it.
GROUPS: dict[str, tuple[str, ...]] = {}
#: What only other settings and the training of a network read.
OF_TRAINING = ("preset", "detector_preset", "auto_length")


def made_of(
    *groups: str,
) -> Callable[[Callable[[Workspace], Built]], cached_property[Built]]:
    """Makes a member of the workspace that a task may use, built when first asked for."""

    def member(build: Callable[[Workspace], Built]) -> cached_property[Built]:
        name = build.__name__
        GROUPS[name] = groups

        @wraps(build)
        def build_if_declared(ws: Workspace) -> Built:
            if not ws.trains and set(groups) & ignored_groups(ws.settings["task"]):
                raise UserError(
                    f"{ws.cfg.task._target_} asks for the {name} of the workspace: add {name} to "
                    "_uses_ in the YAML file of the task"
                )
            return build(ws)

        return cached_property(build_if_declared)

    return member


def uses_of(task: Mapping[str, Any]) -> frozenset[str]:
    """What a task uses, as its YAML says in ``_uses_``; all of :data:`GROUPS` if it says nothing.

    Raises:
        UserError: it names something that the workspace does not have.
    """
    names = task.get("_uses_")
    if names is None:
        return frozenset(GROUPS)
    if wrong := [name for name in names if name not in GROUPS]:
        raise UserError(
            f"{task['_target_']}: _uses_ names '{wrong[0]}'. Choose among {', '.join(GROUPS)}"
        )
    return frozenset(names)


def ignored_groups(task: Mapping[str, Any]) -> frozenset[str]:
    """Groups of the configuration that a task never looks at, as follows from what it uses."""
    read = {group for name in uses_of(task) for group in GROUPS[name]}
    groups = {group for groups in GROUPS.values() for group in groups}
    return frozenset(groups - read) | frozenset(OF_TRAINING)


class Workspace:
    """What a task works with; nothing is built, and no package loaded, before it is asked for.

    Args:
        cfg: the composed configuration.
        run_folder: open and locked on the main process.
        recipe: which file gave a method its settings, in words; None where no file did.
        unused: groups of the configuration that neither the task nor another group reads.

    Attributes:
        manifest: filled by those who work with what made the numbers.
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
        self.manifest: dict[str, Any] = {"config_hash": run_folder.path.parent.name}
        #: Why the run is not finished though its task has ended; the same command goes on.
        self.unfinished: str | None = None
        self.manifest |= environment() | ({"recipe": recipe} if recipe else {})

    #: Of a LightningModule that trains itself; shared by everything that builds it.
    own_training: OwnTraining | None = None

    # What is known of a job before anything is built.

    @property
    def code(self) -> str:
        """Version and commit of this package."""
        return f"{self.manifest['versions']['ood_lab']} {self.manifest['git']}"

    @property
    def is_main(self) -> bool:
        """True on the process that writes (rank 0)."""
        return not rank()

    @property
    def seed(self) -> int:
        """Seed of the bootstrap and of every draw."""
        return int(self.cfg.seed)

    @cached_property
    def model_seed(self) -> int:
        """The seed that the evaluated weights were trained with; the run's own if none is known."""
        ckpt = self.cfg.get("ckpt")
        run = checkpoints.run_of(Path(ckpt)) if ckpt else None
        return int(read_config(run)["seed"]) if run else self.seed

    @property
    def folder(self) -> Path:
        """The run folder's path."""
        return self.run_folder.path

    @property
    def features_root(self) -> Path:
        """Folder of all feature banks."""
        return Path(self.cfg.paths.features)

    @property
    def settings(self) -> dict[str, Any]:
        """The resolved configuration as plain Python."""
        return plain(self.cfg)

    @made_of("model", "ckpt")
    def model(self) -> dict[str, Any]:
        """The resolved ``model`` node."""
        return dict(self.settings["model"])

    @made_of("metrics")
    def metrics(self) -> dict[str, Any]:
        """``protocol``, ``draws`` and ``min_count``."""
        return dict(self.settings["metrics"])

    @property
    def resampling(self) -> dict[str, Any]:
        """``draws`` and ``seed`` of the bootstrap."""
        return {"draws": int(self.metrics["draws"]), "seed": self.seed}

    @made_of("shift")
    def shift(self) -> dict[str, Any]:
        """The resolved ``shift`` node."""
        return dict(self.settings["shift"])

    @cached_property
    def trains(self) -> bool:
        """Whether train.py fits the model on the data; else the task does its own training."""
        return trains(self.cfg)

    @cached_property
    def uses(self) -> frozenset[str]:
        """What the task asks this workspace for."""
        return uses_of(self.settings["task"])

    def build(self, key: str, **arguments: Any) -> Any:
        """Instantiates the configuration node ``key``; errors name the node."""
        return nodes.build(self.cfg, key, **arguments)

    # Data, networks and detectors.

    @cached_property
    def task(self) -> Task:
        """What this job does."""
        return self.build("task")

    @cached_property
    def _unread(self) -> OODDataModule:
        """The DataModule, of which nothing has been read."""
        return self.new_data()

    def new_data(self) -> OODDataModule:
        """A DataModule that makes OOD sets of its ID data where ``graded=...`` says so."""
        # As a node: of a dataclass that is given to it, Hydra would make a dictionary.
        graded = {"graded": self.cfg.graded} if self.cfg.get("graded") else {}
        return self.build("data", **graded)

    @cached_property
    def sets(self) -> OODDataModule:
        """The DataModule, set up and checked, without a word."""
        self._unread.setup()
        return self._unread

    @made_of("data", "graded")
    def data(self) -> OODDataModule:
        """The DataModule, set up, shown, and noted in the run folder."""
        from ood_lab.printing import print_whole

        data = self.sets
        if self.is_main:
            if data.report:
                print_whole(data.report.counts)
                self.note_findings(data.report.findings)
            data.save_splits(self.folder / "splits")
            self._note_inputs({name: split.identity for name, split in data.splits.items()})
        return data

    def note_findings(self, findings: Sequence[Finding]) -> None:
        """Says what the check of the data found, and keeps it where the results are."""
        self.manifest["findings"] = [finding.plain() for finding in findings]
        for finding in findings:
            log.warning("data: %s", finding)

    @made_of("model", "ckpt")
    def backbone(self) -> Backbone:
        """The backbone with its weights, for the classes of the data."""
        from ood_lab.run.networks import warn_if_foreign

        backbone = self.load_backbone(self.data.classes)
        warn_if_foreign(backbone, self.data)
        return backbone

    def load_backbone(self, classes: Sequence[str]) -> Backbone:
        """The backbone with its weights; its head is for ``classes`` unless it keeps its own."""
        return self._load_backbone(self.cfg, classes)

    def _load_backbone(self, cfg: DictConfig, classes: Sequence[str]) -> Backbone:
        from ood_lab.run.networks import load_backbone

        return load_backbone(cfg, classes, lambda: self.data)

    def backbone_of(self, run: str) -> Backbone:
        """The backbone of another run, with its weights, for the classes of this job's data.

        Raises:
            UserError: no run is there, it has no weights, or was trained on other classes.
        """
        path = Path(run)
        saved = OmegaConf.create(read_config(path))
        cfg = self.cfg.copy()
        with open_dict(cfg):
            cfg.model = saved.model
            # Its checkpoint, or what it had evaluated.
            cfg.ckpt = str(path) if checkpoints.folder(path).exists() else saved.ckpt
        return self._load_backbone(cfg, self.data.classes)

    @made_of("clip")
    def clip(self) -> ClipModel:
        """The CLIP of ``clip=...``."""
        return self.build("clip")

    @made_of("annotations")
    def annotations(self) -> Annotations:
        """What ``annotations=...`` says of its images, checked."""
        return self.build("annotations").read()

    @made_of("image_text")
    def image_text(self) -> dict[str, ImageTextModel]:
        """The image-text models of ``image_text=[...]``, by the key of their YAML."""
        names = map(str, self.cfg.get("image_text") or {})
        return {name: self.build(f"image_text.{name}") for name in names}

    @made_of("concepts")
    def concepts(self) -> Any:
        """What ``concepts=...`` builds; None where the annotations say what there is."""
        return self.build("concepts") if self.cfg.get("concepts") else None

    @made_of("generator")
    def generator(self) -> Any:
        """What makes the images, ``generator=...``."""
        return self.build("generator")

    @made_of("lvlm")
    def lvlm(self) -> ChatModel:
        """The chat model of ``lvlm=...``."""
        return self.build("lvlm")

    @made_of("judge")
    def judge(self) -> Any:
        """Who says, for ``judge=...``, what is to be expected."""
        return self.build("judge")

    @made_of("reader")
    def reader(self) -> ChatModel:
        """Who says, for ``reader=...``, what an open answer means."""
        return self.build("reader")

    @property
    def answers_root(self) -> Path:
        """Folder of the answers of all chat models."""
        return Path(self.cfg.paths.answers)

    @made_of("detector", "detector_device")
    def detectors(self) -> dict[str, Detector]:
        """The chosen detectors, by the key of their YAML."""
        names = map(str, self.cfg.get("detector") or {})
        detectors = {name: self._detector(name) for name in names}
        if not detectors:
            raise UserError("no detector chosen: set detector=[knn,vim] or leave it at its default")
        return detectors

    def _detector(self, name: str, **settings: Any) -> Detector:
        """The detector of that YAML, ``settings`` in place of the YAML's."""
        detector: Detector = self.build(f"detector.{name}", **settings)
        detector.name = name
        return detector

    @made_of("tuning")
    def tuning(self) -> Tuning:
        """How detector settings are chosen."""
        from ood_lab.evaluation.tuning import Tuning

        settings = self.settings["tuning"]
        if settings["mode"] == "val_ood" and not settings["sets"]:
            settings["sets"] = self.data.val_ood_names
        return Tuning(**settings, build=self._detector)

    # Trainers and loggers.

    @cached_property
    def loggers(self) -> list[Logger]:
        """Experiment loggers; they live in the run folder."""
        if not (self.is_main and self.cfg.logger):
            return []
        from ood_lab.run.tracking import make_loggers

        return make_loggers(self.cfg, self.run_folder)

    @made_of("trainer", "callbacks")
    def trainer(self) -> L.Trainer:
        """The Trainer that fits; its checkpoints lie in the run folder."""
        from ood_lab.models import EpochSeed
        from ood_lab.run.trainers import fitting_trainer

        callbacks: list[L.Callback] = [EpochSeed(self.seed), self.training_log]
        callbacks += [self.own_training] if self.own_training else []
        return fitting_trainer(self.cfg, self.folder, callbacks, self.loggers, lambda: self.data)

    @made_of("trainer", "callbacks")
    def extractor(self) -> L.Trainer:
        """The Trainer that extracts features: same devices, no logger, no checkpoint."""
        from ood_lab.run.trainers import extracting_trainer

        return extracting_trainer(self.cfg)

    @property
    def last_checkpoint(self) -> Path | None:
        """Where an interrupted training of this very run goes on; None for a fresh one."""
        return checkpoints.to_resume(self.folder)

    @cached_property
    def training_log(self) -> TrainingLog:
        """Tells about the training."""
        from ood_lab.models import TrainingLog
        from ood_lab.run.networks import FINE_TUNING, RANDOM, weights_origin

        enough, origin = (
            self.settings.get("auto_length", {}).get("min_steps", 0),
            weights_origin(self.cfg),
        )
        if origin != RANDOM:
            enough //= FINE_TUNING
        return TrainingLog(str(self.cfg.model.name), origin, enough)

    # The steps of a job.

    def check_settings(self) -> None:
        """What can be known of the settings before anything is built.

        Raises:
            UserError: a value that its target cannot take, a switch that is none, a Trainer that
                this machine cannot serve, or a W&B account that is not there.
        """
        settings = self.settings
        if not isinstance(self.cfg.force, bool):  # `no` is a text, and as such true
            raise UserError(f"force={self.cfg.force}: give true or false")
        if self.builds:
            nodes.check_nodes(settings)
        else:  # what is never built need not be loaded to be checked
            nodes.check_nodes(settings["task"], "task")
        if self.trains or {"trainer", "extractor"} & self.uses:
            from ood_lab.run.trainers import check_length, check_machine, dry_trainer

            check_machine(settings["trainer"])
            if self.trains:
                check_length(settings["trainer"])
            dry_trainer(self.cfg)
        if "detectors" in self.uses:
            from ood_lab.run.trainers import check_detector_device

            check_detector_device(str(settings["detector_device"]))
        if self.is_main and settings["logger"]:
            from ood_lab.run.tracking import check_login

            check_login(settings["logger"])

    @property
    def builds(self) -> bool:
        """Whether this job builds data or networks, or only reads what others have left."""
        return self.trains or bool(self.uses)

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
        write_text(OmegaConf.to_yaml(self.cfg, resolve=True), self.folder / "config.yaml")
        if not (self.folder / inputs.FILE).exists():
            self._note_inputs({})

    def _note_inputs(self, identities: Mapping[str, str]) -> None:
        inputs.note(self.folder, self.settings, self.code, identities)

    @cached_property
    def changes(self) -> list[str]:
        """What the run folder was made from and is no longer the same, in words."""
        if self.cfg.force:  # it is made anew, whatever has changed
            return []
        return inputs.changes_of(self.run_folder, self.settings, self.code, lambda: self._unread)

    @property
    def done(self) -> bool:
        """Whether this very configuration has been run before, on these data and weights."""
        return self.run_folder.done and not self.cfg.force and not self.changes

    @property
    def finished(self) -> bool:
        """Shows a run that is :attr:`done`, which is not repeated; False for any other."""
        from ood_lab.report.shown import show_run

        if not self.done:
            return False
        log.info("already done on %s: %s", (self.folder / "DONE").read_text().strip(), self.folder)
        log.info("these are its results; force=true runs it again")
        show_run(self.folder)
        return True

    def classifier(self) -> L.LightningModule:
        """The LightningModule to train, with a head for the classes of the data."""
        from ood_lab.run.networks import make_classifier

        module, own_training = make_classifier(self.cfg, self.data, self.is_main)
        self.share(own_training=own_training)
        return module

    def finish_training(self, module: L.LightningModule) -> None:
        """Notes down how long the training was, and continues with its best weights."""
        from ood_lab.models import total_steps

        trainer = module.trainer
        self.manifest["training"] = {"epochs": trainer.current_epoch, "steps": total_steps(trainer)}
        if warning := self.training_log.warning(trainer):
            self.manifest["warnings"] = [warning]
        accuracy = checkpoints.val_accuracy(trainer)
        self.manifest |= {} if accuracy is None else {"val_accuracy": accuracy}
        own = self.own_training
        backbone: Backbone = own.backbone if own else module.backbone  # type: ignore[assignment]
        backbone.load(checkpoints.weights_file(self.folder))
        self.share(backbone=backbone, model_seed=self.seed)

    def share(self, **objects: Any) -> None:
        """Gives objects that were built elsewhere to those who ask for them from here on."""
        self.__dict__.update(objects)

    def run_task(self) -> None:
        """Runs the task and logs what it returns."""
        task, loggers = self.task, self.loggers  # from here on, a failure is a failed W&B run
        with self._computing():
            results = task.run(self)
        if self.is_main and results is not None:
            from ood_lab.run.tracking import log_results

            log_results(loggers, self.folder)

    def _computing(self) -> AbstractContextManager[None]:
        """Detectors compute where ``detector_device`` says, which the manifest notes."""
        if "detectors" not in self.uses:
            return nullcontext()
        from ood_lab.detectors.device import computing_on

        device = str(self.cfg.detector_device)
        if device == "auto":
            root = self.extractor.strategy.root_device
            device = str(root) if root.type == "cuda" else "cpu"
        self.manifest["detector_device"] = device
        return computing_on(device)

    def close(self) -> None:
        """Marks the run as finished.

        Raises:
            UserError: it is :attr:`unfinished`; all that it has found so far lies in its folder.
        """
        if self.is_main:
            if self.builds:
                import torch

                # It decides in which order numbers are added up, and so their last digits.
                self.manifest["threads"] = torch.get_num_threads()
            self.manifest["finished"] = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            manifest = json.dumps(self.manifest, indent=2, default=str)
            write_text(manifest, self.folder / "manifest.json")
            if self.unfinished is not None:
                raise UserError(f"{self.unfinished}. What there is lies in {self.folder}")
            if self.cfg.debug:
                log.info("this was a debug run, which no other run takes for its own")
            else:
                write_text(self.manifest["finished"] + "\n", self.folder / "DONE")
            pages = sorted(self.folder.glob("*.html"))
            log.info("Results: %s", pages[0] if pages else self.folder)


class Task(ABC):
    """What a job does: one class per ``conf/task/*.yaml``.

    Hydra builds it from its YAML; its fields are its settings. Its YAML says in ``_uses_`` which
    members of the workspace it asks for (:data:`GROUPS`): a run is made of that part of the
    configuration alone, a dry run builds no more, and the workspace refuses all other members.
    """

    def check(self, ws: Workspace) -> None:  # noqa: B027 - most have nothing to check
        """Raises :class:`UserError` where this task cannot work, before any long work."""

    @abstractmethod
    def run(self, ws: Workspace) -> pd.DataFrame | None:
        """Does the work; the table is logged. None on other ranks, and where there is no table."""
