"""The head of a network that has none, fitted on ID train."""

from __future__ import annotations

import logging
from pathlib import Path

import torch
import torch.nn.functional as F
from lightning import Trainer
from lightning.pytorch.utilities.seed import isolate_rng

from ood_lab.common.errors import UserError
from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.evaluation.split_features import Extraction
from ood_lab.features.process_agreement import told_by_main
from ood_lab.models import FITTED, Backbone
from ood_lab.schema.run_record import Facts

log = logging.getLogger(__name__)


def fit_head(
    backbone: Backbone, trainer: Trainer, data: OODDataModule, root: Path, validated: bool = False
) -> Facts:
    """Fits the head of a backbone, ``fitted_head`` or linear; all processes must call it.

    Features of ID train are extracted, or read from the bank; the logits of that bank mean nothing.
    The head is zero meanwhile, so that all seeds share that bank, and no random number is drawn.

    Args:
        backbone: gets the head.
        trainer: of the passes.
        data: set up.
        root: folder of all banks.
        validated: measure the accuracy on ID val too, ``val_accuracy`` (a fraction).

    Returns:
        ``kind``, ``images`` and ``train_accuracy`` (a fraction), for the manifest.

    Raises:
        UserError: ID train has no labels, or a class without images.
    """
    data.require_labels()
    kind, classes = backbone.fitted_head or "linear", data.classes
    labels = torch.as_tensor(data.splits["train"].labels)
    counts = torch.bincount(labels, minlength=len(classes))
    if not bool(counts.all()):
        empty = classes[int(counts.argmin())]
        raise UserError(
            f"model.head={kind} is fitted on ID train, which has no image of '{empty}': add some, "
            "or leave the class out"
        )
    splits = ["train", *(["val"] if validated and "val" in data.splits else [])]
    assert backbone.head is not None  # it is fitted
    with isolate_rng(), torch.no_grad():
        for parameter in backbone.head.parameters():
            parameter.zero_()
        features = Extraction(data, backbone, trainer, root).features(splits)
        fitted = FITTED[kind](features["train"], labels, len(classes)) if features else None
        fitted = told_by_main(trainer, fitted)
        assert fitted is not None  # the main process has the features
        weight, bias = fitted
        backbone.head.weight.copy_(weight)
        backbone.head.bias.copy_(bias)
    facts: Facts = {"kind": kind, "images": len(labels)}
    for split, of_split in features.items():
        predictions = F.linear(of_split.float(), weight.float(), bias.float()).argmax(dim=1)
        right = predictions == torch.as_tensor(data.splits[split].labels)
        facts[f"{split}_accuracy"] = float(right.double().mean())
    if features:
        log.info(
            "%s: a %s head was fitted on the %s images of ID train, of which it gets %.1f%% "
            "right%s",
            backbone.name,
            kind.replace("_", " "),
            f"{len(labels):,}",
            100 * facts["train_accuracy"],
            f"; val accuracy {facts['val_accuracy']:.1%}" if "val_accuracy" in facts else "",
        )
    return facts
