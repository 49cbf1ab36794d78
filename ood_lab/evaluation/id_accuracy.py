"""Does the network suit the data? Asked before any detector is believed."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from lightning.pytorch.utilities import rank_zero_only

from ood_lab.clip import TextHead
from ood_lab.data.sizes import ImageSize
from ood_lab.errors import UserError
from ood_lab.features.bank import FeatureBank
from ood_lab.metrics import at_chance
from ood_lab.models import Backbone

log = logging.getLogger(__name__)
CAUSES = (
    "the usual causes are a wrong checkpoint, another class order, or another transform or input "
    "size than the weights were trained with"
)
#: Times as many pixels as the images have from which a network's input size is worth a word.
ENLARGED = 4


@rank_zero_only
def warn_of_size(backbone: Backbone, size: ImageSize) -> None:
    """Warns of a network that enlarges the images, with what it costs."""
    height, width = backbone.data_config["input_size"][1:]
    factor = height * width / (size.height * size.width)
    if factor < ENLARGED:
        return
    own = size.width if size.width == size.height else f"[3,{size.height},{size.width}]"
    log.warning(
        "%s takes %d × %d pixels, %s %d × %d: enlarged, they take about %.0f times as long as at "
        "their own size. For weights made for small images, set model.backbone.input_size=%s (and "
        "model.backbone.allow_transform_mismatch=true where they state another size)",
        backbone.name,
        width,
        height,
        "all ID images have" if size.shared else "the middle ID image has",
        size.width,
        size.height,
        factor,
        own,
    )


def check_id_accuracy(
    bank: FeatureBank, classes: Sequence[str], expected: float | None
) -> float | None:
    """Top-1 accuracy of the ID test bank as a fraction; None where it is not defined.

    It is not defined without labels, or when the head has other classes than the data (a
    pretrained head on one's own classes): logits are then used as they are. ``expected`` is what
    the weights are known to reach, in percent.

    Raises:
        UserError: the accuracy is more than 2 points below ``expected``.
    """
    heads, known = bank.logits.shape[1], bank.labels >= 0
    if not bool(known.any()):
        log.warning("the ID test set has no labels: ID accuracy cannot be checked")
        return None
    if heads != len(classes):
        log.warning(
            "the head has %d classes, the data %d: ID accuracy is not defined, and detectors on "
            "logits see the head's own classes. train.py gives a head for your classes.",
            heads,
            len(classes),
        )
        return None
    correct = bank.predictions[known] == bank.labels[known]
    accuracy = float(correct.double().mean())
    if expected is not None and 100 * accuracy < expected - 2:
        raise UserError(
            f"ID accuracy is {accuracy:.1%}, expected {expected:.1f}% "
            f"(model.expected_id_acc): {CAUSES}"
        )
    return accuracy


def chance_warning(
    bank: FeatureBank, accuracy: float | None, backbone: Backbone, manifest: Mapping[str, Any]
) -> str | None:
    """What to do about a network that is no better than chance; None about any other.

    ``bank`` and ``accuracy`` are those of :func:`check_id_accuracy`; the manifest has ``training``
    (``epochs``, ``steps``) where this run has just trained the network.
    """
    n, heads = int((bank.labels >= 0).sum()), bank.logits.shape[1]
    if accuracy is None or not at_chance(accuracy, n, heads):
        return None
    if trained := manifest.get("training"):
        advice = (
            f"the training (epochs: {trained['epochs']:,}, steps: {trained['steps']:,}) has not "
            "taught it the classes: train longer (trainer.max_epochs), or with another learning "
            "rate (model.classifier.optimizer.lr)"
        )
    elif isinstance(backbone, TextHead):
        advice = (
            "the usual causes are class names that this CLIP does not know, images unlike those "
            "that it was trained on, or a wrong checkpoint"
        )
    else:
        advice = CAUSES
    return (
        f"ID accuracy is {accuracy:.1%}, no better than chance ({1 / heads:.1%} of {heads:,} "
        f"classes), so the scores mean nothing and no detector is marked as best: {advice}"
    )
