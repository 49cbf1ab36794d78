"""A look at ID accuracy before any detector is believed."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

from ood_lab.errors import UserError
from ood_lab.features.bank import FeatureBank

log = logging.getLogger(__name__)
CAUSES = "the usual causes are a wrong checkpoint, another class order, or another transform"


def check_id_accuracy(
    bank: FeatureBank, classes: Sequence[str], expected: float | None
) -> float | None:
    """Top-1 accuracy of the ID test bank as a fraction; None where it is not defined.

    It is not defined without labels, or when the head has other classes than the data (a
    pretrained head on one's own classes): logits are then used as they are.

    Args:
        bank: the ID test bank.
        classes: names of the ID classes.
        expected: accuracy the weights are known to reach (percent); None = unknown.

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
    accuracy, n = float(correct.double().mean()), int(known.sum())
    if expected is not None and 100 * accuracy < expected - 2:
        raise UserError(
            f"ID accuracy is {accuracy:.1%}, expected {expected:.1f}% "
            f"(model.expected_id_acc): {CAUSES}"
        )
    chance = 1 / heads
    if heads > 1 and accuracy <= chance + 2 * math.sqrt(chance * (1 - chance) / n):
        log.warning("ID accuracy is %.1f%%, no better than chance: %s", 100 * accuracy, CAUSES)
    return accuracy
