"""Heads of multi-label data: one sigmoid per class, so that classes do not exclude each other."""

from __future__ import annotations

from dataclasses import replace

from ood_lab.common.errors import UserError
from ood_lab.models.backbone import Backbone
from ood_lab.models.loading.wrapped_network import WrappedBackbone
from ood_lab.models.trial_passes import evaluating, random_batch


def as_multilabel(backbone: Backbone) -> None:
    """Declares that the head of a backbone is multi-label.

    Without a linear head, outputs from 0 to 1 are probabilities p: log p − log(1 − p) is the logit.

    Raises:
        UserError: there are no logits, they are of a softmax, or the head is fitted on ID train.
    """
    name = backbone.name
    if backbone.fitted_head:
        raise UserError(
            f"model.head={backbone.fitted_head} fits a softmax, which model.multilabel=true "
            "excludes: give a network with its head, or model.head=none"
        )
    if backbone.normalised:
        raise UserError(
            f"model.multilabel=true: {name} returns a softmax, one class per image. Choose its "
            "logits with model.output=KEY"
        )
    backbone.multilabel = True
    if backbone.head is not None or not isinstance(backbone, WrappedBackbone):
        return
    with evaluating(backbone):
        values = backbone(random_batch(backbone, backbone.data_config["input_size"])).logits
    if values.numel() and bool(((values >= 0) & (values <= 1)).all()):
        backbone.reading = replace(backbone.reading, probabilities="sigmoid")
