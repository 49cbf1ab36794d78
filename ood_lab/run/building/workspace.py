"""The objects of one configuration, each built when first asked for."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from omegaconf import DictConfig, OmegaConf, open_dict

from ood_lab.common.errors import UserError
from ood_lab.common.files import read_config
from ood_lab.run.building import checkpoints, nodes, synthetic_datasets
from ood_lab.run.building.job_settings import JobSettings
from ood_lab.run.building.task_groups import made_of
from ood_lab.run.job import input_files
from ood_lab.run.job.trained_weights import TrainedWeights, training_key

if TYPE_CHECKING:
    import lightning as L
    import pandas as pd
    from lightning.pytorch.loggers import Logger

    from ood_lab.clip import ClipModel
    from ood_lab.data.datamodules.base import OODDataModule
    from ood_lab.detectors import Detector
    from ood_lab.evaluation.detector_tuning import Tuning
    from ood_lab.lvlm.annotations import Annotations
    from ood_lab.lvlm.chat.base import ChatModel
    from ood_lab.lvlm.image_text.base import ImageTextModel
    from ood_lab.models import Backbone, OwnTraining, TrainingLog
    from ood_lab.schema.run_record import Finding

log = logging.getLogger(__name__)


class Workspace(JobSettings):
    """Everything a task works with; each object is built, and its packages loaded, on first use."""

    #: The extra parts of a LightningModule that trains itself; shared by everything that builds it.
    own_training: OwnTraining | None = None

    def build(self, key: str, **arguments: Any) -> Any:
        """Instantiates the configuration node ``key``; errors name the node."""
        return nodes.build(self.cfg, key, **arguments)

    # Data, networks and detectors.

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

    @cached_property
    def sets(self) -> OODDataModule:
        """The DataModule, set up and checked, without printing anything."""
        self._unread.setup()
        return self._unread

    @made_of("data", "synthetic_ood")
    def data(self) -> OODDataModule:
        """The DataModule, set up, printed, and recorded in the run folder."""
        from ood_lab.common.console import print_whole

        data = self.sets
        if self.is_main:
            if data.report:
                print_whole(data.report.counts)
                self.note_findings(data.report.findings)
            data.save_splits(self.folder / "splits")
            self._note_inputs({name: split.identity for name, split in data.splits.items()})
        return data

    def note_findings(self, findings: Sequence[Finding]) -> None:
        """Reports the findings of the data check, and stores them with the results."""
        self.record.findings = list(findings)
        for finding in findings:
            log.warning("data: %s", finding)

    @made_of("model", "ckpt", "ensemble", "mc_dropout")
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

    def check_weights(self) -> None:
        """Loads the backbone where classes are held out, which it must not know.

        Raises:
            UserError: see :attr:`backbone`.
        """
        if self.data.held_out:
            _ = self.backbone

    def load_backbone(self, classes: Sequence[str], fit: bool = True) -> Backbone:
        """The backbone with its weights; its head is for ``classes`` unless it keeps its own.

        A network without a head gets one that is fitted on ID train, unless ``fit`` is False.
        """
        return self._load_backbone(self.cfg, classes, fit)

    def _load_backbone(self, cfg: DictConfig, classes: Sequence[str], fit: bool = True) -> Backbone:
        from ood_lab.run.building.networks import load_backbone

        backbone = load_backbone(cfg, classes, lambda: self.data)
        if classes and backbone.num_classes not in (0, len(classes)):
            backbone.label_classes = len(classes)
        if backbone.chance:
            self.record.warnings.append(backbone.chance)
        if fit and backbone.fitted_head and not cfg.ckpt:
            from ood_lab.evaluation.fitted_head import fit_head

            facts = fit_head(backbone, self.extractor, self.data, self.features_root)
            self.record.fitted_head = self.record.fitted_head or facts
        return backbone

    def backbone_of(self, run: str) -> Backbone:
        """The backbone of another run, with its weights, for the classes of this job's data.

        Raises:
            UserError: there is no such run, it has no weights, or it was trained on other classes.
        """
        saved = OmegaConf.create(read_config(Path(run)))
        return self.network(saved.model, checkpoints.trained_weights(run, saved))

    def network(self, model: DictConfig, ckpt: str | None) -> Backbone:
        """The backbone of a node like ``model``, for the classes of this job's data.

        Raises:
            UserError: it has no weights, or was trained on other classes.
        """
        cfg = self.cfg.copy()
        with open_dict(cfg):
            cfg.model, cfg.ckpt = model, ckpt
        return self._load_backbone(cfg, self.data.classes)

    def other_networks(self) -> list[tuple[str | None, Callable[[], Backbone]]]:
        """What loads the other networks of an ensemble: runs by number, or samples by dropout.

        Raises:
            UserError: the runs are not of the same images and classes.
        """
        from ood_lab.models import dropout_sample

        runs = [str(run) for run in self.cfg.get("ensemble") or []]
        for run in runs[1:]:
            checkpoints.check_classes(Path(run), self.data.classes)
            images = [input_files.training_images(Path(r)) for r in (runs[0], run)]
            if None not in images and images[0][0] != images[1][0]:  # type: ignore[index]
                raise UserError(
                    f"ensemble: {run} was trained on other images than {runs[0]}: choose runs that "
                    "differ only in seed or network"
                )
        n = int(self.cfg.get("mc_dropout") or 0)
        samples = [partial(dropout_sample, self.backbone, i, self.seed) for i in range(n)]
        for sample in samples[:1]:
            sample()  # raises before any long work
        return [(None, sample) for sample in samples] + [
            (str(number), partial(self.backbone_of, run)) for number, run in enumerate(runs[1:], 2)
        ]

    def task_of(self, run: Path) -> Task:
        """The task of another run, with its settings.

        Raises:
            UserError: there is no such run, or its settings are those of another version.
        """
        return nodes.build(OmegaConf.create(read_config(run)), "task")

    @made_of("clip")
    def clip(self) -> ClipModel:
        """The CLIP of ``clip=...``."""
        return self.build("clip")

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

    @made_of("generator")
    def generator(self) -> Any:
        """The image generator of ``generator=...``."""
        return self.build("generator")

    @made_of("lvlm")
    def lvlm(self) -> ChatModel:
        """The vision-language model of ``lvlm=...``."""
        return self.build("lvlm")

    @made_of("judge")
    def judge(self) -> Any:
        """The judge of ``judge=...``, which says what is to be expected."""
        return self.build("judge")

    @made_of("reader")
    def reader(self) -> ChatModel:
        """Who says, for ``reader=...``, what an open answer means."""
        return self.build("reader")

    @made_of("detector", "detector_device")
    def detectors(self) -> dict[str, Detector]:
        """The chosen detectors, by the key of their YAML."""
        if not (detectors := self.new_detectors()):
            raise UserError("no detector chosen: set detector=[knn,vim] or leave it at its default")
        return detectors

    def new_detectors(self) -> dict[str, Detector]:
        """The same once more, not fitted."""
        names = map(str, self.cfg.get("detector") or {})
        return {name: self._detector(name) for name in names}

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

        return make_loggers(self.cfg, self.run_folder)

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
        from ood_lab.run.building.networks import FINE_TUNING, RANDOM, weights_origin

        enough, origin = (
            self.settings.get("auto_length", {}).get("min_steps", 0),
            weights_origin(self.cfg),
        )
        if origin != RANDOM:
            enough //= FINE_TUNING
        return TrainingLog(str(self.cfg.model.name), origin, enough)

    @cached_property
    def weights(self) -> TrainedWeights:
        """The weights that ``train.py`` trains, or takes from a run that has trained them."""
        settings, place = self.settings, Path(self.cfg.paths.weights)
        files = input_files.files_of_training(settings, self.folder)
        return TrainedWeights(
            place / training_key(settings, self.data, files) / f"seed={self.seed}"
        )

    def share(self, **objects: Any) -> None:
        """Makes members of this workspace out of objects that were built elsewhere."""
        self.__dict__.update(objects)


class Task(ABC):
    """The work of a job: one class per ``conf/task/*.yaml``.

    Hydra builds it from its YAML; its fields are its settings. Its YAML says in ``_uses_`` which
    members of the workspace it uses (:mod:`~ood_lab.run.building.task_groups`): a run depends on
    that part of the configuration only, a dry run builds no more, and the workspace denies all
    other members.
    """

    #: Whether it evaluates the networks of ``ensemble`` and ``mc_dropout``.
    takes_ensembles: ClassVar[bool] = False

    def check(self, ws: Workspace) -> None:  # noqa: B027 - most have nothing to check
        """Raises :class:`UserError` where this task cannot work, before any long work."""

    @abstractmethod
    def run(self, ws: Workspace) -> pd.DataFrame | None:
        """Does the work; the table is logged. None on other ranks, and if there is no table."""
