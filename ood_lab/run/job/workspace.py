"""The job of one configuration: its objects, each built when first asked for, and its steps."""

from __future__ import annotations

import copy
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, open_dict

from ood_lab.common.arguments import Settings
from ood_lab.common.errors import UserError
from ood_lab.common.files import read_config, write_text
from ood_lab.common.hints import check_known
from ood_lab.common.random_streams import Resampling
from ood_lab.common.stage_times import Stages
from ood_lab.run.building import checkpoints, nodes, synthetic_datasets
from ood_lab.run.commandline.composition import plain, running_overrides, trains
from ood_lab.run.commandline.overrides import key_of
from ood_lab.run.commandline.process_start import is_main
from ood_lab.run.job import input_files
from ood_lab.run.job.run_directory import RunFolder, environment
from ood_lab.run.job.trained_weights import TrainedWeights, training_key
from ood_lab.schema.finished_run import FinishedRun
from ood_lab.schema.run_record import Facts, RunRecord

if TYPE_CHECKING:
    import lightning as L
    import pandas as pd
    from lightning.pytorch.loggers import Logger

    from ood_lab.clip import ClipModel
    from ood_lab.data.datamodules.base import OODDataModule
    from ood_lab.data.dataset import ImageDataset
    from ood_lab.detectors import Detector
    from ood_lab.detectors.base import Detectors
    from ood_lab.evaluation.detector_tuning import Tuning
    from ood_lab.lvlm.annotations import Annotations
    from ood_lab.lvlm.chat.base import ChatModel
    from ood_lab.lvlm.image_text.base import ImageTextModel
    from ood_lab.models import Backbone, OwnTraining, TrainingLog
    from ood_lab.report.rendering.blocks import Block

log = logging.getLogger(__name__)
Built = TypeVar("Built")
#: Groups that only other settings and the training of a network read.
OF_TRAINING = ("preset", "detector_preset")


class Member(cached_property[Any]):
    """A member of the workspace that a task declares, made from groups of the configuration."""

    def __init__(self, build: Callable[[Any], Any], groups: tuple[str, ...]) -> None:
        super().__init__(build)
        self.groups = groups

    def __get__(self, ws: Any, owner: type[Any] | None = None) -> Any:
        """Builds the member once.

        Raises:
            UserError: the task does not declare it.
        """
        if ws is not None and not ws.trains and {*self.groups} & ignored_groups(ws.uses):
            raise UserError(
                f"{ws.cfg.task._target_} asks for the {self.attrname} of the workspace: add "
                f"{self.attrname} to uses in the YAML file of the task"
            )
        return super().__get__(ws, owner)


def made_of(*groups: str) -> Callable[[Callable[[Any], Built]], cached_property[Built]]:
    """Declares a :class:`Member`, made from these groups of the configuration."""
    return partial(Member, groups=groups)


def built_of(group: str) -> Any:
    """A :class:`Member` that is the object of one group."""
    return Member(lambda ws: ws.build(group), (group,))


class Workspace:
    """Everything a task works with, and the steps of its run in the order in which they happen.

    Each object is built, and its packages loaded, on first use.

    Args:
        cfg: the composed configuration.
        run_folder: open and locked on the main process.
        recipe: the file that gave a method its settings, in words; None if none did.
        unused: groups of the configuration that neither the task nor another group reads.

    Attributes:
        record: facts about how the numbers were made, added by whatever code knows them.
        stages: how long each stage took.
        unfinished: why the run is not finished though its task has ended; the same command
            resumes it.
        retrains: whether a training is repeated though its weights are there.
        own_training: the extra parts of a LightningModule that trains itself.
    """

    def __init__(
        self,
        cfg: DictConfig,
        run_folder: RunFolder,
        recipe: str | None,
        unused: frozenset[str],
    ) -> None:
        self.cfg = cfg
        self.unused = unused
        self.run_folder = run_folder
        self.record = RunRecord(
            config_hash=run_folder.path.parent.name, recipe=recipe, **environment()
        )
        self.stages = Stages()
        self.unfinished: str | None = None
        self.retrains = False
        self.own_training: OwnTraining | None = None

    # What is known before anything is built.

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
    def _resolved(self) -> Facts:
        return plain(self.cfg)

    @property
    def settings(self) -> Facts:
        """The resolved configuration as plain Python; a copy, which its reader may change."""
        return copy.deepcopy(self._resolved)

    @made_of("model", "ckpt", "loss")
    def model(self) -> Settings:
        """The resolved ``model`` node."""
        return self.settings["model"]

    @made_of("metrics")
    def metrics(self) -> Settings:
        """``fpr95_positive``, ``n_bootstrap`` and ``min_count``."""
        return self.settings["metrics"]

    @property
    def resampling(self) -> Resampling:
        """Of every bootstrap."""
        return Resampling(int(self.metrics["n_bootstrap"]), self.seed)

    @made_of("report_by")
    def report_by(self) -> Settings:
        """The resolved ``report_by`` node."""
        return self.settings["report_by"]

    @cached_property
    def trains(self) -> bool:
        """True if train.py fits the model on the data; otherwise the task does its own training."""
        return trains(self.cfg)

    @cached_property
    def uses(self) -> frozenset[str]:
        """The members of this workspace that the task uses."""
        return uses_of(self._resolved["task"])

    @property
    def builds(self) -> bool:
        """True if this job builds data or networks; False if it only reads earlier results."""
        return self.trains or bool(self.uses)

    @property
    def detectors_chosen(self) -> bool:
        """True if the command line or an experiment chooses the detectors, the default too."""
        typed = any(key_of(o) == "detector" for o in running_overrides())
        return typed or HydraConfig.get().runtime.choices.get("detector") != "default"

    # Data, networks and detectors.

    def build(self, key: str, **arguments: Any) -> Any:
        """Instantiates the configuration node ``key``; errors name the node."""
        return nodes.build(self.cfg, key, **arguments)

    @cached_property
    def task(self) -> Task:
        """The task of this job."""
        return self.build("task")

    @cached_property
    def _unread(self) -> OODDataModule:
        """The DataModule before anything has been read."""
        return self.new_data()

    def new_data(self) -> OODDataModule:
        """A DataModule that makes OOD sets from its ID data if :attr:`synthetic_ood` says so."""
        # As a node: Hydra would turn a dataclass into a dictionary.
        synthetic_ood = {"synthetic_ood": self.synthetic_ood} if self.synthetic_ood else {}
        data = self.settings["data"]
        groups = {kind: data.get(kind) for kind in ("id", "csid", "ood", "ood_val")}
        sources = nodes.left_to_data(groups | {"": {"outliers": data.get("outliers")}})
        return self.build("data", **sources.pop(""), **sources, **synthetic_ood)

    @cached_property
    def synthetic_ood(self) -> DictConfig | None:
        """The node that makes OOD sets of ID test; None without one."""
        return synthetic_datasets.graded_of(self.settings)

    @made_of("data", "synthetic_ood")
    def data(self) -> OODDataModule:
        """The DataModule, set up, printed, and recorded in the run folder."""
        from ood_lab.report.rendering.blocks import Text
        from ood_lab.report.rendering.table import text_table
        from ood_lab.report.rendering.terminal import print_whole

        data = self._unread
        data.setup()
        if self.is_main:
            if data.report:
                notes = [Text(f"· {note}", "note") for note in data.report.notes]
                print_whole([text_table("Data", data.report.rows), *notes])
                self.record.findings = list(data.report.findings)
                for finding in data.report.findings:
                    log.warning("data: %s", finding)
            data.save_splits(self.folder / "splits")
            self._note_inputs(data.splits)
        return data

    @made_of("model", "ckpt", "loss")
    def backbone(self) -> Backbone:
        """The backbone with its weights, for the classes of the data.

        Raises:
            UserError: see :func:`~ood_lab.run.building.networks.load_backbone`; or it knows the
                classes that are held out.
        """
        from ood_lab.run.building.networks import (
            check_multilabel,
            check_trained_without,
            knows_held_out,
            warn_if_foreign,
        )

        check_trained_without(self.cfg.ckpt, self.data.held_out)
        backbone = self.load_backbone(self.data.classes)
        check_multilabel(backbone, self.data)
        warn_if_foreign(backbone, self.data)
        if doubt := knows_held_out(backbone, self.data):
            self.record.warnings.append(doubt)
        return backbone

    def load_backbone(
        self, classes: Sequence[str], fit: bool = True, cfg: DictConfig | None = None
    ) -> Backbone:
        """The backbone with its weights; its head is for ``classes`` unless it keeps its own.

        A network without a head gets one that is fitted on ID train, unless ``fit`` is False.
        ``cfg`` is the configuration of another network; None = that of the job.
        """
        from ood_lab.run.building.networks import load_backbone

        cfg = self.cfg if cfg is None else cfg
        backbone = load_backbone(cfg, classes, lambda: self.data)
        if tiles := cfg.model.get("tiles"):
            from ood_lab.models.image_tiles import use_tiles

            use_tiles(
                backbone, tiles, lambda: (self.data.image_size.width, self.data.image_size.height)
            )
        if classes and backbone.num_classes not in (0, len(classes)):
            backbone.label_classes = len(classes)
        if backbone.chance:
            self.record.warnings.append(backbone.chance)
        if fit and not cfg.ckpt:
            self.fit_head(backbone)
        elif fit and cfg.get("loss"):
            self.fit_probe(backbone)
        return backbone

    def fit_probe(self, backbone: Backbone) -> None:
        """Fits a linear head where the training loss of a network has left its own as it was."""
        if backbone.objective is not None and backbone.objective.probed:
            self.fit_head(backbone)

    def fit_head(self, backbone: Backbone) -> None:
        """Fits the head of a network without one on ID train, and records it."""
        if backbone.fitted_head:
            from ood_lab.evaluation.fitted_head import fit_head

            facts = fit_head(backbone, self.extractor, self.data, self.features_root)
            self.record.fitted_head = self.record.fitted_head or facts

    def backbone_of(self, run: str) -> Backbone:
        """The backbone of another run, with its weights, for the classes of this job's data.

        Raises:
            UserError: there is no such run, it has no weights, or it was trained on other classes.
        """
        saved = OmegaConf.create(read_config(Path(run)))
        weights = checkpoints.trained_weights(run, saved)
        return self.network(saved.model, weights, saved.get("loss"))

    def network(
        self, model: DictConfig, ckpt: str | None, loss: DictConfig | None = None
    ) -> Backbone:
        """The backbone of a node like ``model``, for the classes of this job's data.

        Raises:
            UserError: it has no weights, or was trained on other classes.
        """
        cfg = self.cfg.copy()
        with open_dict(cfg):
            cfg.model, cfg.ckpt, cfg.loss = model, ckpt, loss
        return self.load_backbone(self.data.classes, cfg=cfg)

    def task_of(self, run: Path) -> Task:
        """The task of another run, with its settings.

        Raises:
            UserError: there is no such run, or its settings are those of another version.
        """
        return nodes.build(OmegaConf.create(read_config(run)), "task")

    clip: ClipModel = built_of("clip")
    generator: Any = built_of("generator")  # of images
    lvlm: ChatModel = built_of("lvlm")
    judge: Any = built_of("judge")  # says what is to be expected
    reader: ChatModel = built_of("reader")  # says what an open answer means

    @made_of("annotations")
    def annotations(self) -> Annotations:
        """The annotations of ``annotations=...``, checked."""
        return self.build("annotations").read()

    @made_of("image_text")
    def image_text(self) -> dict[str, ImageTextModel]:
        """The image-text models of ``image_text=[...]``, by the key of their YAML.

        One that the YAML leaves partial is made of the model of ``lvlm=...``.
        """
        names = map(str, self.cfg.get("image_text") or {})
        found = {name: self.build(f"image_text.{name}") for name in names}
        chat = [name for name, model in found.items() if isinstance(model, partial)]
        return found | {name: found[name](self.lvlm, self.answers_root) for name in chat}

    @made_of("concepts")
    def concepts(self) -> Any:
        """The object of ``concepts=...``; None if the annotations name the concepts."""
        return self.build("concepts") if self.cfg.get("concepts") else None

    @made_of("detector", "detector_device")
    def detectors(self) -> Detectors:
        """The chosen detectors, by the key of their YAML."""
        if not self.cfg.get("detector"):
            raise UserError("no detector chosen: set detector=[knn,vim] or leave it at its default")
        return {name: self._detector(name) for name in map(str, self.cfg.detector)}

    def _detector(self, name: str, **settings: Any) -> Detector:
        """The detector of that YAML; ``settings`` override the YAML's."""
        from ood_lab.detectors import named

        detector: Detector = self.build(f"detector.{name}", **settings)
        return named({name: detector})[name]

    @made_of("tuning")
    def tuning(self) -> Tuning:
        """The way detector settings are chosen."""
        from ood_lab.evaluation.detector_tuning import Tuning

        settings = self.settings["tuning"]
        if settings["mode"] == "val_ood" and not settings["sets"]:
            settings["sets"] = self.data.val_ood_names
        return Tuning(**settings, build=self._detector)

    # Trainers and loggers.

    @cached_property
    def loggers(self) -> list[Logger]:
        """Experiment loggers; their files are in the run folder."""
        if not (self.is_main and self.cfg.logger):
            return []
        from ood_lab.run.tracking.experiment_loggers import make_loggers

        return make_loggers(self.cfg, self.folder)

    @made_of("trainer", "callbacks")
    def trainer(self) -> L.Trainer:
        """The Trainer for fitting; its checkpoints are in the run folder."""
        from ood_lab.models import EpochSeed
        from ood_lab.run.building.trainers import fitting_trainer

        callbacks: list[L.Callback] = [EpochSeed(self.seed), self.training_log]
        callbacks += [self.own_training] if self.own_training else []
        place = self.weights.path if self.trains else self.folder
        return fitting_trainer(self.cfg, place, callbacks, self.loggers, lambda: self.data)

    @made_of("trainer", "callbacks")
    def extractor(self) -> L.Trainer:
        """The Trainer for extracting features: same devices, no logger, no checkpoints."""
        from ood_lab.run.building.trainers import extracting_trainer

        return extracting_trainer(self.cfg)

    @property
    def last_checkpoint(self) -> Path | None:
        """The checkpoint from which an interrupted training resumes; None for a fresh run.

        Processes that start together find what the main one does, which may yet have to set an
        older run aside.
        """
        from ood_lab.features.process_agreement import agreed, join

        found = checkpoints.to_resume(self.folder)
        join(self.trainer)
        return agreed(self.trainer, found)

    @cached_property
    def training_log(self) -> TrainingLog:
        """The callback that reports on the training."""
        from ood_lab.models import TrainingLog
        from ood_lab.models.training.lightning_extensions import MIN_STEPS
        from ood_lab.run.building.networks import FINE_TUNING, RANDOM, weights_origin

        origin = weights_origin(self.cfg)
        enough = MIN_STEPS if origin == RANDOM else MIN_STEPS // FINE_TUNING
        return TrainingLog(str(self.cfg.model.name), origin, enough)

    @cached_property
    def weights(self) -> TrainedWeights:
        """The weights that ``train.py`` trains, or takes from a run that has trained them."""
        settings, place = self.settings, Path(self.cfg.paths.weights)
        files = input_files.files_of_training(settings, self.folder)
        return TrainedWeights(
            place / training_key(settings, self.data, files) / f"seed={self.seed}"
        )

    # The steps of a run.

    def check_settings(self) -> None:
        """Checks everything that can be checked of the settings before anything is built.

        Raises:
            UserError: a value that its target does not accept, a switch that is not true or false,
                a Trainer that this machine cannot provide, or no W&B account.
        """
        settings = self.settings
        if not isinstance(self.cfg.force, bool):  # `no` is a text, and as such true
            raise UserError(f"force={self.cfg.force}: give true or false")
        if self.builds:
            nodes.check_nodes(settings)
        else:  # objects that are never built need not be loaded to be checked
            nodes.check_nodes(settings["task"], "task")
        if self.trains or {"trainer", "extractor"} & self.uses:
            from ood_lab.run.building.trainers import check_trainer

            check_trainer(self.cfg, settings, self.trains)
            if self.trains:
                from ood_lab.run.building.networks import check_loss

                check_loss(self.cfg)
        if "detectors" in self.uses:
            from ood_lab.run.building.trainers import check_detector_device

            check_detector_device(str(settings["detector_device"]))
        if self.is_main and settings["logger"]:
            from ood_lab.run.tracking.experiment_loggers import check_login, check_running_sweep

            check_login(settings["logger"])
            if node := settings["logger"].get("wandb"):
                check_running_sweep(node.get("entity"), node.get("project"))

    def begin(self) -> None:
        """Prepares the open folder; results from other data or weights are set aside."""
        if self.cfg.force:
            # A task that always looks again (force in its YAML) resumes where it was killed.
            if self.run_folder.done or any(key_of(o) == "force" for o in running_overrides()):
                self.run_folder.empty()
                self.retrains = True
        elif self.changes:
            reason = "; ".join(self.changes)
            log.warning("what %s was made from has changed: %s", self.folder, reason)
            log.warning(
                "starting from scratch; old files are kept in %s", self.run_folder.set_aside(reason)
            )
        if self.run_folder.done:
            return
        write_text(OmegaConf.to_yaml(self.cfg, resolve=True), self.folder / "config.yaml")
        if not (self.folder / input_files.FILE).exists():
            self._note_inputs({})

    @cached_property
    def changes(self) -> list[str]:
        """Descriptions of everything that has changed since the run folder was made from it."""
        if self.cfg.force:  # it is run again, whatever has changed
            return []
        changes = input_files.changes_of(
            self.run_folder, self.settings, self.code, lambda: self._unread
        )
        # The device decides what the default leaves out, and not what a choice does.
        if self.run_folder.done and self.detectors_chosen:
            left_out = FinishedRun(self.folder).record.left_out_to_save_time
            changes += [f"it left out {', '.join(left_out)} to save time"] if left_out else []
        return changes

    @property
    def done(self) -> bool:
        """True if this very configuration has been run before on the same data and weights.

        Raises:
            UserError: a file of that run is damaged.
        """
        return self.run_folder.done and not self.cfg.force and not self.changes and self._whole

    @cached_property
    def _whole(self) -> bool:
        FinishedRun(self.folder).check()
        return True

    @property
    def finished(self) -> bool:
        """Shows a run that is :attr:`done` instead of repeating it; False for any other."""
        from ood_lab.report.rendering.summary import show_run

        if not self.done:
            return False
        log.info("already done on %s: %s", (self.folder / "DONE").read_text().strip(), self.folder)
        log.info("these are its results; force=true runs it again")
        tables: dict[str, Sequence[Block]] = {}
        if self.settings.get("detector_table") == "all":
            from ood_lab.report.detection.detection_page import tables_of

            tables = tables_of(FinishedRun(self.folder))
        show_run(self.folder, tables)
        return True

    def run_task(self) -> None:
        """Runs the task and logs what it returns."""
        task, loggers = self.task, self.loggers  # from here on, a failure is a failed W&B run
        with self._computing():
            results = task.run(self)
        if self.is_main and results is not None:
            from ood_lab.run.tracking.experiment_loggers import log_results

            log_results(loggers, FinishedRun(self.folder), self.record)

    def _computing(self) -> AbstractContextManager[None]:
        """Makes detectors compute on ``detector_device``, which the record records."""
        if "detectors" not in self.uses:
            return nullcontext()
        from ood_lab.detectors.support.compute_device import computing_on

        device = str(self.cfg.detector_device)
        if device == "auto":
            root = self.extractor.strategy.root_device
            device = str(root) if root.type == "cuda" else "cpu"
        self.record.detector_device = device
        return computing_on(device)

    def close(self) -> None:
        """Marks the run as finished.

        Raises:
            UserError: it is :attr:`unfinished`; its results so far are in its folder.
        """
        if self.is_main:
            if self.builds:
                import torch

                # It decides the order of summation, and so the last digits.
                self.record.threads = torch.get_num_threads()
            if self.stages.seconds:
                self.record.seconds = {k: round(s, 2) for k, s in self.stages.seconds.items()}
                log.info("%s", self.stages)
            self.record.finished = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            self.record.files = self.run_folder.records()
            self.record.write(self.folder)
            if self.unfinished is not None:
                raise UserError(f"{self.unfinished}. Its partial results are in {self.folder}")
            if self.cfg.debug:
                log.info("this was a debug run, which no other run takes for its own")
            else:
                write_text(self.record.finished + "\n", self.folder / "DONE")
            pages = sorted(self.folder.glob("*.html"))
            log.info("Results: %s", pages[0] if pages else self.folder)

    def _note_inputs(self, splits: Mapping[str, ImageDataset]) -> None:
        identities = {name: split.identity for name, split in splits.items()}
        input_files.note(self.folder, self.settings, self.code, identities)


#: Members of the workspace that a task may declare, and the groups from which each is made.
GROUPS = {name: part.groups for name, part in vars(Workspace).items() if isinstance(part, Member)}


def uses_of(task: Settings) -> frozenset[str]:
    """The members of the workspace that a task uses, by the node of its YAML; see :class:`Task`.

    Raises:
        UserError: it names something that the workspace does not have.
    """
    if task.get("uses") is None:
        return frozenset(GROUPS)
    more = [members for key, members in task.get("uses_with", {}).items() if task[key]]
    names = [*task["uses"], *(name for members in more for name in members)]
    check_known(names, GROUPS, f"{task['_target_']}: the workspace has no '{{name}}'")
    return frozenset(names)


def ignored_by(cfg: DictConfig) -> frozenset[str]:
    """Groups that a job with this configuration never reads; none of a training of ``train.py``."""
    return frozenset() if trains(cfg) else ignored_groups(uses_of(cfg.task))


def ignored_groups(uses: frozenset[str]) -> frozenset[str]:
    """Groups of the configuration that a task with these members never reads."""
    read = {group for name in uses for group in GROUPS[name]}
    of_members = frozenset(g for groups in GROUPS.values() for g in groups)
    return (of_members - read) | {*OF_TRAINING, "augmentation"}


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """The work of a job: one class per ``conf/task/*.yaml``.

    Hydra builds it from its YAML; its fields are its settings.

    Args:
        uses: members of the workspace that it uses. A run depends on that part of the configuration
            only, a dry run builds no more, and the workspace denies all other members. None = all.
        uses_with: a setting of the task -> members that it uses where that setting is true.
        synthetic_ood: the file of ``conf/synthetic_ood`` that it takes where ``data`` has no OOD
            set and none was chosen; None = none.
        subject: what it is about, in the name of the run folder; None = the model.
    """

    uses: Sequence[str] | None = None
    uses_with: Mapping[str, Sequence[str]] = field(default_factory=dict)
    synthetic_ood: str | None = None
    subject: str | None = None

    def check(self, ws: Workspace) -> None:  # noqa: B027 - most have nothing to check
        """Raises :class:`UserError` where this task cannot work, before any long work."""

    @abstractmethod
    def run(self, ws: Workspace) -> pd.DataFrame | None:
        """Does the work; the table is logged. None on other ranks, and if there is no table."""
