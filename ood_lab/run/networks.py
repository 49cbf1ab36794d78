"""The data of a job and its networks, built when first asked for."""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import lightning as L
from hydra.utils import get_object

from ood_lab.clip import ClipModel, TextHead
from ood_lab.data.datamodule import OODDataModule
from ood_lab.errors import UserError
from ood_lab.evaluation.id_accuracy import warn_of_size
from ood_lab.models import Backbone, Classifier, saved_entry, saved_labels, train_transform
from ood_lab.printing import print_whole
from ood_lab.run import checkpoints, inputs
from ood_lab.run.configured import Configured
from ood_lab.shift.encoder import warn_if_foreign

log = logging.getLogger(__name__)


class Networks(Configured):
    """Data, backbone, CLIP and the module to train."""

    @cached_property
    def sets(self) -> OODDataModule:
        """The DataModule, set up and checked, without a word."""
        data: OODDataModule = self.build("data")
        data.setup()
        return data

    @cached_property
    def data(self) -> OODDataModule:
        """The DataModule, set up, shown, and noted in the run folder."""
        data = self.sets
        if self.is_main:
            print_whole(data.report or "")
            data.save_splits(self.folder / "splits")
            self.note_inputs({name: split.identity for name, split in data.splits.items()})
        return data

    @cached_property
    def changes(self) -> list[str]:
        """What the run folder was made from and is no longer the same, in words.

        Empty where nothing was made yet or ``force`` makes it anew, and where what it was made
        from is gone: its results can then be neither checked nor made again.

        Raises:
            UserError: the note of it is damaged, or the data has become unusable.
        """
        if self.cfg.force:
            return []
        if not (self.folder / inputs.FILE).exists():
            return ["nothing says what it was made from"] * self.run_folder.done
        found = inputs.compare(self.folder, self._named_paths, self.code)
        others = [f"{key}={self._named_paths[key]}" for key in found.others]
        return others + (self._changed_sets(found.data) if found.data else [])

    def _changed_sets(self, suspects: Sequence[str]) -> list[str]:
        """Sets whose identity is not the noted one, with the first files that made them suspect."""
        noted = inputs.noted_identities(self.folder)
        sources = self.build("data").sources if noted else {}
        if gone := [str(path) for path in sources.values() if not path.exists()]:
            log.warning(
                "the data of %s cannot be compared: %s is no longer there", self.folder, gone[0]
            )
            return []
        changed = [n for n in noted if n not in self.sets.splits or self._identity(n) != noted[n]]
        more = f" and {len(suspects) - 3} more" if len(suspects) > 3 else ""
        return [f"data {', '.join(changed)} ({', '.join(suspects[:3])}{more})"] if changed else []

    def _identity(self, name: str) -> str:
        return self.sets.splits[name].identity

    @cached_property
    def _named_paths(self) -> dict[str, Path]:
        weights = checkpoints.weights_file(Path(self.cfg.ckpt)) if self.cfg.ckpt else None
        return inputs.named_paths(self.settings, weights, self.folder)

    def note_inputs(self, identities: Mapping[str, str]) -> None:
        """Writes down in the run folder what the run is made from.

        Args:
            identities: of the sets of its data, once they are known.
        """
        inputs.note(self.folder, self._named_paths, self.code, identities)

    @cached_property
    def backbone(self) -> Backbone:
        """The backbone with its weights, for the classes of the data."""
        backbone = self.load_backbone(self.data.classes)
        self._warn_if_foreign(backbone)
        return backbone

    def _warn_if_foreign(self, backbone: Backbone) -> None:
        """Warns of a network that is made for other images than those of the data."""
        if isinstance(backbone, TextHead):
            warn_if_foreign(backbone.clip, self.data)
        else:
            warn_of_size(backbone, self.data.image_size)

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
            "model.backbone", num_classes=num_classes, **self._asked_for(file, classes)
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

    def _asked_for(self, file: Path | None, classes: Sequence[str]) -> dict[str, Any]:
        """What the network's builder asks for: class names for texts, label sizes for heads, ...

        A checkpoint says what its network was built for, so that no data is needed.
        """
        target = get_object(self.cfg.model.backbone["_target_"])
        wanted = inspect.signature(target).parameters
        known: dict[str, Any] = {"classes": list(classes)} if "classes" in wanted else {}
        if "data_config" in wanted and file:
            known["data_config"] = saved_entry(file, "data_config")
        if "image_size" in wanted and not known.get("data_config"):
            size = self.data.image_size
            known["image_size"] = (size.width, size.height) if size.shared else None
        if "labels" in wanted:
            saved = saved_labels(file) if file else None
            known["labels"] = saved or self.data.labels.plain()
        return known

    @cached_property
    def model_seed(self) -> int:
        """The seed that the evaluated weights were trained with; the run's own if none is known."""
        found = checkpoints.training_seed(self.cfg.ckpt)
        return self.seed if found is None else found

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
        make = self.build("model.classifier")
        if issubclass(make.func, Classifier) and make.func.needs_labels:
            self.data.require_labels()
        backbone: Backbone = self.build(
            "model.backbone",
            num_classes=len(self.data.classes),
            **self._asked_for(None, self.data.classes),
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
        module: L.LightningModule = make(backbone=backbone)
        if isinstance(module, Classifier):
            module.check_optimizer()
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
        self.__dict__["model_seed"] = self.seed
        trainer = module.trainer
        self.manifest["training"] = {"epochs": trainer.current_epoch, "steps": trainer.global_step}
        accuracy = checkpoints.val_accuracy(trainer)
        self.manifest |= {} if accuracy is None else {"val_accuracy": accuracy}
