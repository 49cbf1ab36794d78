"""The network of a job: its weights loaded, or wrapped in the module that trains it."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import lightning as L
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from ood_lab.common.arguments import Settings, hints_of
from ood_lab.common.english import counted, listed
from ood_lab.common.errors import UserError
from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.evaluation.id_accuracy import warn_of_size
from ood_lab.models import (
    Backbone,
    Classifier,
    Objective,
    OwnTraining,
    WeightsFile,
    WrappedBackbone,
    check_determinism,
    load_weights,
    own_steps,
    saved_entry,
    train_transform,
)
from ood_lab.models.head_check import as_multilabel
from ood_lab.models.training.foreign_module import NEEDED
from ood_lab.run.building import checkpoints, nodes
from ood_lab.run.commandline.composition import plain, running_overrides
from ood_lab.run.commandline.overrides import key_of
from ood_lab.schema.image_columns import SEVERAL

if TYPE_CHECKING:
    from ood_lab.clip import ClipModel

log = logging.getLogger(__name__)
#: Reported by :func:`weights_origin` for a network that is trained from scratch.
RANDOM = "random weights"
#: Factor by which fine-tuning needs fewer steps.
FINE_TUNING = 10
#: Number of photographs below which a network trained from scratch rarely learns much.
FEW_PHOTOS = 5_000


def warn_if_foreign(backbone: Backbone, data: OODDataModule) -> None:
    """Warns if the network was made for images unlike those of the data."""
    if backbone.text_head:
        from ood_lab.evaluation.shift import shift_encoder  # loads open_clip

        shift_encoder.warn_if_foreign(cast("ClipModel", backbone.clip), data)
    else:
        warn_of_size(backbone, data.image_size)


def check_trained_without(ckpt: str | None, held_out: Sequence[str]) -> None:
    """Raises :class:`UserError` where a run was trained with classes that are held out here."""
    if ckpt and (known := set(held_out).intersection(checkpoints.classes_of(Path(ckpt)))):
        raise UserError(_knows(f"ckpt={ckpt} was trained with {listed(sorted(known))}", held_out))


def check_multilabel(backbone: Backbone, data: OODDataModule) -> None:
    """Raises :class:`UserError` where only one of head and ID labels is multi-label."""
    labels = data.splits["train"].labels
    if backbone.multilabel and bool((labels >= 0).any()):
        raise UserError(
            "model.multilabel=true needs ID images with lists of classes: data=folder with a "
            "table whose column label has cat;dog, or a JSON list"
        )
    if not backbone.multilabel and bool((labels == SEVERAL).any()):
        raise UserError("the ID images have lists of classes: set model.multilabel=true")


def knows_held_out(backbone: Backbone, data: OODDataModule) -> str | None:
    """What to say where a network may know the classes that are held out.

    Raises:
        UserError: its head has as many classes as the data have with those.
    """
    stay, held = len(data.classes), data.held_out
    heads = backbone.num_classes
    # The head of a CLIP is made of the names of the classes that stay.
    if not held or heads in (0, stay) or backbone.text_head:
        return None
    if heads == stay + len(held):
        what = f"the head of {backbone.name} has {heads:,} classes, as many as with the held-out"
        raise UserError(_knows(f"{what} {listed(held)}", held))
    return (
        f"the head of {backbone.name} has {heads:,} classes, ID {stay:,} without the held-out "
        f"{listed(held)}: if it was trained with images of these, they are not OOD for it and the "
        "numbers of their sets mislead; train.py with the same synthetic_ood=... trains without "
        "them"
    )


def _knows(what: str, held_out: Sequence[str]) -> str:
    return (
        f"{what}: what the network knows is not OOD. train.py with this synthetic_ood=... trains "
        f"without {listed(held_out)}; synthetic_ood=corruptions makes an OOD set that holds out no "
        "class"
    )


def load_backbone(
    cfg: DictConfig, classes: Sequence[str], data: Callable[[], OODDataModule]
) -> Backbone:
    """The backbone with its weights; its head is for ``classes`` unless it keeps its own.

    The data are loaded only if the network's builder needs to know something about them.

    Raises:
        UserError: it has no weights, or they belong to other classes.
    """
    model, ckpt = cfg.model, cfg.ckpt
    own_head = checkpoints.check_weights(cfg)
    file = checkpoints.weights_file(Path(ckpt)) if ckpt else None
    if ckpt and not classes:  # images without labels: the network keeps the classes it knows
        classes = checkpoints.classes_of(Path(ckpt))
        if not (classes or model.backbone.num_classes):
            raise UserError(
                f"the ID images have no labels, and nothing says which classes ckpt={ckpt} knows: "
                "give labelled images to data.id.train, or the folder of a run to ckpt"
            )
    heads = model.backbone.num_classes or (None if own_head else len(classes))
    needs = _asked_for(cfg, file, classes, data)
    backbone = _built(cfg, classes, trained=file is not None, num_classes=heads, **needs)
    if cfg.get("loss"):
        if not file:
            raise UserError("loss=... says how a network was trained: name its run with ckpt=RUN")
        objective = nodes.build(cfg, "loss")
        if isinstance(objective, Objective):
            objective.attach(backbone)
    if file:
        checkpoints.check_classes(Path(ckpt), classes)
        backbone.load(_weights(cfg, file))
    if model.get("multilabel"):
        as_multilabel(backbone)
    if isinstance(backbone, WrappedBackbone) and (remark := backbone.reading.told):
        log.info("%s: %s", backbone.name, remark)
    _check_determinism(cfg, backbone)
    return backbone


def _check_determinism(cfg: DictConfig, backbone: Backbone) -> None:
    backbone.chance = check_determinism(backbone, allow_random=bool(cfg.model.get("allow_random")))


def _built(cfg: DictConfig, names: Sequence[str], *, trained: bool, **arguments: Any) -> Backbone:
    """The network, called what the user has chosen, which may be another word than timm's for it.

    A network of the user's own keeps the name of its class. ``names`` are those of the classes.
    Where it is or was ``trained`` for them, the head of ``model.weights`` may be for others.
    """
    if file := cfg.model.get("weights"):
        arguments |= {"weights": _weights(cfg, file)}
        if trained and cfg.model.backbone.get("new_head") is False:
            arguments["new_head"] = None
    backbone: Backbone = nodes.build(cfg, "model.backbone", **arguments)
    if cfg.model.get("net"):
        backbone.arguments = json.dumps(plain(cfg)["model"]["net"], default=str)
    else:
        backbone.name = str(cfg.model.name)
    if isinstance(backbone, WrappedBackbone):
        backbone.match_outputs(names)
    return backbone


def _weights(cfg: DictConfig, file: str | Path) -> WeightsFile:
    """The file with the choice of ``model.weights_entry`` and ``model.match``."""
    return WeightsFile(file, cfg.model.get("weights_entry"), cfg.model.get("match") or "name")


def make_classifier(
    cfg: DictConfig, data: OODDataModule, is_main: bool
) -> tuple[L.LightningModule, OwnTraining | None]:
    """The LightningModule to train, with a head for the classes of the data.

    The second item belongs to a network that trains itself. Only the main process gives advice.
    """
    checkpoints.check_pretrained(cfg)
    if cfg.model.get("multilabel"):
        raise UserError(
            "train.py trains one class per image: leave model.multilabel out, or score a trained "
            "multi-label network with eval.py"
        )
    if cfg.model.get("tiles"):
        raise UserError("model.tiles is for eval.py: train.py trains on whole images")
    make = nodes.build(cfg, "model.classifier")
    if issubclass(make.func, Classifier):
        data.require_labels()
    objective = {"loss": nodes.build(cfg, "loss")} if cfg.get("loss") else {}
    asked_for = _asked_for(cfg, None, data.classes, lambda: data)
    heads = len(data.classes)
    backbone = _built(cfg, data.classes, trained=True, num_classes=heads, **asked_for)
    if not backbone.num_classes:
        raise UserError(
            f"model.head=none: {backbone.name} gives features only, which train.py cannot train: "
            "eval.py scores it unchanged, and model.head=linear fits a head"
        )
    warn_if_foreign(backbone, data)
    if cfg.ckpt:
        weights = _weights(cfg, checkpoints.weights_file(Path(cfg.ckpt)))
        load_weights(backbone, weights, backbone.name, new_head="objective")
    _check_determinism(cfg, backbone)
    if is_main:
        _advise(cfg, data)
    augment, geometry = nodes.build(cfg, "model.augment"), nodes.build(cfg, "model.geometry")
    if cfg.get("augmentation"):
        augment = [*(augment or []), nodes.build(cfg, "augmentation")]
    data.use_transform(train=train_transform(backbone, augment, geometry), eval=backbone.transform)
    if make.func is Classifier and (own := _own_training(cfg, backbone, data)):
        if objective:
            raise UserError(f"{backbone.name} trains itself: leave loss=... out")
        return cast(L.LightningModule, own.backbone.net), own
    module = make(backbone=backbone, **objective)
    if isinstance(module, Classifier):
        module.check_optimizer()
        if module.objective is not None:
            data.use_views(module.objective.views)
            if per_image := module.objective.outliers_per_image:
                data.use_outliers(per_image)
    return module, None


def check_loss(cfg: DictConfig) -> None:
    """Checks that the training loss, the model and ``data.outliers`` go together.

    Raises:
        UserError: one has no use for the other.
    """
    objective = nodes.build(cfg, "loss") if cfg.get("loss") else None
    accepted = inspect.signature(nodes.target(cfg.model.classifier)).parameters
    if objective is not None and "loss" not in accepted:
        raise UserError(f"{cfg.model.name} trains with a loss of its own: leave loss=... out")
    needed = isinstance(objective, Objective) and objective.outliers_per_image
    present = cfg.data.get("outliers") is not None
    if needed and not present:
        raise UserError(
            "this loss trains with images that are neither ID nor evaluated: give them with "
            "data.outliers=DIR"
        )
    if present and not needed:
        raise UserError(
            "this loss does not use data.outliers: choose one that does, such as "
            "loss=outlier_exposure, or remove data.outliers"
        )


def _advise(cfg: DictConfig, data: OODDataModule) -> None:
    """Suggests what works better for few photographs than a network trained from scratch.

    It is unknown what the constructor of a user's own network loads; builtin data is synthetic.
    """
    n = len(data.splits["train"])
    if n >= FEW_PHOTOS or not data.sources or cfg.model.get("net"):
        return
    if weights_origin(cfg) == RANDOM:
        log.info(
            "advice: %s learns from nothing but %s; fine-tuning a pretrained network mostly gets "
            "much further: model=timm model.name=resnet18 model.pretrained=true "
            "trainer.max_epochs=10 (see docs/how-to/use-your-model.md)",
            cfg.model.name,
            counted(n, "photograph"),
        )


def _own_training(cfg: DictConfig, backbone: Backbone, data: OODDataModule) -> OwnTraining | None:
    """The extra parts that a backbone's LightningModule needs if it trains itself, else None."""
    if not isinstance(backbone, WrappedBackbone):
        return None
    net, steps = backbone.net, own_steps(backbone.net)
    if not isinstance(net, L.LightningModule) or not steps:
        return None
    if missing := [name for name in NEEDED if name not in steps]:
        log.warning(
            "%s has a %s but no %s, so model.classifier trains it",
            backbone.name,
            listed(steps),
            listed(missing),
        )
        return None
    log.info("%s trains itself: its %s are used", backbone.name, " and ".join(NEEDED))
    typed = running_overrides() if HydraConfig.initialized() else []
    for key in filter(lambda key: key.startswith("model.classifier"), map(key_of, typed)):
        log.warning("%s changes nothing: %s trains itself", key, backbone.name)
    own = OwnTraining(backbone, plain(cfg)["model"].get("batch"))
    data.use_batch(own.batch)
    return own


def _asked_for(
    cfg: DictConfig, file: Path | None, classes: Sequence[str], data: Callable[[], OODDataModule]
) -> Settings:
    """The arguments that the network's builder asks for: class names, label sizes, image size.

    A checkpoint says what its network was built for, so that no data is needed.
    """
    builder = nodes.target(cfg.model.backbone)
    wanted = {*inspect.signature(builder).parameters, *hints_of(builder)}
    known: dict[str, Any] = {"classes": list(classes)} if "classes" in wanted else {}
    if "data_config" in wanted and file:
        known["data_config"] = saved_entry(file, "data_config")
    if "image_size" in wanted and not known.get("data_config"):
        size = data().image_size
        known["image_size"] = (size.width, size.height) if size.shared else None
    if "labels" in wanted:
        saved = saved_entry(file, "labels") if file else None
        known["labels"] = saved or vars(data().labels)
    return known


def weights_origin(cfg: DictConfig) -> str:
    """A description of where the network's weights come from."""
    model = plain(cfg)["model"]
    if cfg.ckpt:
        return f"weights of {cfg.ckpt}"
    words = {"weights": "weights", "trunk_weights": "trunk with the weights", "path": "weights"}
    for key, what in words.items():
        if model.get(key):
            return f"{what} of {model[key]}"
    if clip := (model.get("backbone") or {}).get("clip"):
        return f"CLIP {clip['name']} with its weights"
    return "pretrained weights" if model.get("pretrained") else RANDOM
