"""The data of a job and its networks, built when first asked for."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import lightning as L
from hydra.utils import get_object

from ood_lab.clip import ClipModel, TextHead
from ood_lab.data.datamodule import OODDataModule
from ood_lab.errors import UserError
from ood_lab.models import Backbone, saved_labels, train_transform
from ood_lab.printing import print_whole
from ood_lab.run import checkpoints
from ood_lab.run.configured import Configured
from ood_lab.tasks.referee import warn_if_foreign


class Networks(Configured):
    """Data, backbone, CLIP and the module to train."""

    @cached_property
    def data(self) -> OODDataModule:
        """The DataModule, set up and checked."""
        data: OODDataModule = self.build("data")
        data.setup()
        if self.is_main:
            print_whole(data.report or "")
            data.save_splits(self.folder / "splits")
        return data

    @cached_property
    def backbone(self) -> Backbone:
        """The backbone with its weights, for the classes of the data."""
        backbone = self.load_backbone(self.data.classes)
        self._warn_if_foreign(backbone)
        return backbone

    def _warn_if_foreign(self, backbone: Backbone) -> None:
        if isinstance(backbone, TextHead):
            warn_if_foreign(backbone.clip, self.data)

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
        self._warn_if_foreign(backbone)
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

    @property
    def weights_origin(self) -> str:
        """Where the weights of the network come from, in words."""
        model = self.model
        if self.cfg.ckpt:
            return f"weights of {self.cfg.ckpt}"
        if model.get("weights"):
            return f"weights of {model['weights']}"
        if model.get("trunk_weights"):
            return f"trunk with the weights of {model['trunk_weights']}"
        if "clip" in (model.get("backbone") or {}):
            return f"CLIP {self.cfg.clip.name} with its weights"
        return "pretrained weights" if model.get("pretrained") else "random weights"

    def take_best(self, module: L.LightningModule) -> None:
        """Continues with the best weights of the training that has just ended."""
        backbone: Backbone = module.backbone  # type: ignore[assignment]
        backbone.load(checkpoints.weights_file(self.folder))
        self.__dict__["backbone"] = backbone
        accuracy = checkpoints.val_accuracy(module.trainer)
        self.manifest |= {} if accuracy is None else {"val_accuracy": accuracy}
