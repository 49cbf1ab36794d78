"""The head of a network that has none, fitted on ID train."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from lightning import Trainer

from ood_lab.common.errors import UserError
from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.evaluation.split_features import Extraction
from ood_lab.features.process_agreement import told_by_main
from ood_lab.models import FITTED, Backbone

log = logging.getLogger(__name__)


def fit_head(
    backbone: Backbone, trainer: Trainer, data: OODDataModule, root: Path
) -> dict[str, Any]:
    """Gives a backbone with ``fitted_head`` its head; all processes must call it.

    Features of ID train are extracted, or read from the bank; the logits of that bank mean nothing.

    Returns:
        ``kind``, ``images`` and ``train_accuracy`` (a fraction), for the manifest.

    Raises:
        UserError: ID train has no labels, or a class without images.
    """
    data.require_labels()
    kind, classes = str(backbone.fitted_head), data.classes
    labels = torch.as_tensor(data.splits["train"].labels)
    counts = torch.bincount(labels, minlength=len(classes))
    if not bool(counts.all()):
        empty = classes[int(counts.argmin())]
        raise UserError(
            f"model.head={kind} is fitted on ID train, which has no image of '{empty}': add some, "
            "or leave the class out"
        )
    features = Extraction(data, backbone, trainer, root).features(["train"])
    fitted = FITTED[kind](features["train"], labels, len(classes)) if features else None
    fitted = told_by_main(trainer, fitted)
    assert fitted is not None  # the main process has the features
    assert backbone.head is not None  # it is zero
    with torch.no_grad():
        for parameter, value in zip(
            (backbone.head.weight, backbone.head.bias), fitted, strict=True
        ):
            parameter.copy_(value)
    facts: dict[str, Any] = {"kind": kind, "images": len(labels)}
    if features:
        weight, bias = (value.float() for value in fitted)
        right = F.linear(features["train"].float(), weight, bias).argmax(dim=1) == labels
        facts["train_accuracy"] = float(right.double().mean())
        log.info(
            "%s has no head: a %s head was fitted on the %s images of ID train, of which it gets "
            "%.1f%% right",
            backbone.name,
            kind.replace("_", " "),
            f"{len(labels):,}",
            100 * facts["train_accuracy"],
        )
    return facts
