"""The network of a job: its weights loaded, or wrapped in the module that trains it."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning as L
from hydra.core.hydra_config import HydraConfig
from hydra.utils import get_object

from ood_lab.clip import TextHead
from ood_lab.data.datamodule import OODDataModule
from ood_lab.errors import UserError
from ood_lab.evaluation.id_accuracy import warn_of_size
from ood_lab.models import (
    Backbone,
    Classifier,
    OwnTraining,
    WrappedBackbone,
    own_steps,
    saved_entry,
    saved_labels,
    train_transform,
)
from ood_lab.models.own_training import NEEDED
from ood_lab.run import checkpoints
from ood_lab.run.compose import running_overrides
from ood_lab.run.values import key_of
from ood_lab.shift import encoder
from ood_lab.words import counted

if TYPE_CHECKING:
    from ood_lab.run.workspace import Workspace

log = logging.getLogger(__name__)
#: What :func:`weights_origin` says of a network that learns from nothing.
RANDOM = "random weights"
#: Fine-tuning needs so many times fewer steps.
FINE_TUNING = 10
#: Photographs below which a network that learns from nothing rarely learns much.
FEW_PHOTOS = 5_000


def warn_if_foreign(backbone: Backbone, data: OODDataModule) -> None:
    """Warns of a network that is made for other images than those of the data."""
    if isinstance(backbone, TextHead):
        encoder.warn_if_foreign(backbone.clip, data)
    else:
        warn_of_size(backbone, data.image_size)


def load_backbone(ws: Workspace, classes: Sequence[str]) -> Backbone:
    """The backbone with its weights; its head is for ``classes`` unless it keeps its own.

    Raises:
        UserError: it has no weights, or these are of other classes.
    """
    model, ckpt = ws.cfg.model, ws.cfg.ckpt
    own_head = checkpoints.check_weights(ws.cfg)
    file = checkpoints.weights_file(Path(ckpt)) if ckpt else None
    if ckpt and not classes:  # images without labels: the network keeps the classes that it knows
        classes = checkpoints.classes_of(Path(ckpt))
        if not (classes or model.backbone.num_classes):
            raise UserError(
                f"the ID images have no labels, and nothing says which classes ckpt={ckpt} knows: "
                "give labelled images to data.id.train, or the folder of a run to ckpt"
            )
    backbone: Backbone = ws.build(
        "model.backbone",
        num_classes=model.backbone.num_classes or (None if own_head else len(classes)),
        **_asked_for(ws, file, classes),
    )
    if file:
        checkpoints.check_classes(Path(ckpt), classes)
        backbone.load(file)
    return backbone


def make_classifier(ws: Workspace) -> L.LightningModule:
    """The LightningModule to train, with a head for the classes of the data."""
    make, data = ws.build("model.classifier"), ws.data
    if issubclass(make.func, Classifier) and make.func.needs_labels:
        data.require_labels()
    backbone: Backbone = ws.build(
        "model.backbone", num_classes=len(data.classes), **_asked_for(ws, None, data.classes)
    )
    warn_if_foreign(backbone, data)
    if ws.cfg.ckpt:
        backbone.load(checkpoints.weights_file(Path(ws.cfg.ckpt)))
    _advise(ws)
    augment, geometry = ws.build("model.augment"), ws.build("model.geometry")
    data.use_transform(train=train_transform(backbone, augment, geometry), eval=backbone.transform)
    if own := _own_training(ws, backbone):
        return own
    module = make(backbone=backbone)
    if isinstance(module, Classifier):
        module.check_optimizer()
    return module


def _advise(ws: Workspace) -> None:
    """Says what serves few photographs better than a network that learns from nothing.

    Of a network of the user's own nobody knows what its constructor loads; builtin data is drawn.
    """
    n = len(ws.data.splits["train"])
    if n >= FEW_PHOTOS or not ws.data.sources or ws.model.get("net") or not ws.is_main:
        return
    if weights_origin(ws) == RANDOM:
        log.info(
            "advice: %s learns from nothing but %s; fine-tuning a pretrained network mostly gets "
            "much further: model=timm model.name=resnet18 model.pretrained=true "
            "trainer.max_epochs=10 (see docs/models.md)",
            ws.model["name"],
            counted(n, "photograph"),
        )


def _own_training(ws: Workspace, backbone: Backbone) -> L.LightningModule | None:
    """The LightningModule within a backbone, where it trains itself, with all it needs for that."""
    of_ours = get_object(ws.cfg.model.classifier["_target_"]) is Classifier
    if not isinstance(backbone, WrappedBackbone) or not of_ours:
        return None
    net, steps = backbone.net, own_steps(backbone.net)
    if not isinstance(net, L.LightningModule) or not steps:
        return None
    if missing := [name for name in NEEDED if name not in steps]:
        log.warning(
            "%s has a %s but no %s, so model.classifier trains it", backbone.name, *steps, *missing
        )
        return None
    log.info("%s trains itself: its %s are used", backbone.name, " and ".join(NEEDED))
    typed = running_overrides() if HydraConfig.initialized() else []
    for key in filter(lambda key: key.startswith("model.classifier"), map(key_of, typed)):
        log.warning("%s changes nothing: %s trains itself", key, backbone.name)
    own = OwnTraining(backbone, ws.model.get("batch"))
    ws.data.use_batch(own.batch)
    ws.share(own_training=own)
    return net


def _asked_for(ws: Workspace, file: Path | None, classes: Sequence[str]) -> dict[str, Any]:
    """What the network's builder asks for: class names for texts, label sizes for heads, ...

    A checkpoint says what its network was built for, so that no data is needed.
    """
    target = get_object(ws.cfg.model.backbone["_target_"])
    wanted = inspect.signature(target).parameters
    known: dict[str, Any] = {"classes": list(classes)} if "classes" in wanted else {}
    if "data_config" in wanted and file:
        known["data_config"] = saved_entry(file, "data_config")
    if "image_size" in wanted and not known.get("data_config"):
        size = ws.data.image_size
        known["image_size"] = (size.width, size.height) if size.shared else None
    if "labels" in wanted:
        saved = saved_labels(file) if file else None
        known["labels"] = saved or ws.data.labels.plain()
    return known


def weights_origin(ws: Workspace) -> str:
    """Where the weights of the network come from, in words."""
    model = ws.model
    if ws.cfg.ckpt:
        return f"weights of {ws.cfg.ckpt}"
    words = {"weights": "weights", "trunk_weights": "trunk with the weights", "path": "weights"}
    for key, what in words.items():
        if model.get(key):
            return f"{what} of {model[key]}"
    if clip := (model.get("backbone") or {}).get("clip"):
        return f"CLIP {clip['name']} with its weights"
    return "pretrained weights" if model.get("pretrained") else RANDOM
