"""Does the network suit the data? Asked before any detector is believed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from lightning.pytorch.utilities import rank_zero_only
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from ood_lab.common.english import first_of
from ood_lab.common.errors import UserError
from ood_lab.common.random_streams import Resampling
from ood_lab.data.checks.check_report import ImageSize
from ood_lab.data.dataset import ImageDataset, targets
from ood_lab.features.bank import Banks, FeatureBank
from ood_lab.metrics import at_chance, map_of
from ood_lab.metrics.resampling.group_intervals import effective_size
from ood_lab.models import Backbone
from ood_lab.schema.image_columns import SEVERAL
from ood_lab.schema.run_record import RunRecord

log = logging.getLogger(__name__)
CAUSES = (
    "the usual causes are a wrong checkpoint, another class order, or another transform or input "
    "size than the weights were trained with"
)
#: Share of the predictions from which one class has nearly all of them, and how far above its share
#: of the labels that must be: of images that are nearly all of one class, it is right.
NEARLY_ALL, BEYOND = 0.95, 0.10
#: Times as many pixels as the images have from which a network's input size is worth a word.
ENLARGED = 4


@rank_zero_only
def warn_of_size(backbone: Backbone, size: ImageSize) -> None:
    """Warns of a network that enlarges the images, with what it costs."""
    height, width = backbone.data_config["input_size"][1:]
    factor = height * width / (size.height * size.width)
    if factor < ENLARGED:
        return
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
        size.width if size.width == size.height else f"[3,{size.height},{size.width}]",
    )


def check_id_accuracy(
    bank: FeatureBank,
    classes: Sequence[str],
    by_shape: bool = False,
    remedy: str = "train.py trains a head",
) -> float | None:
    """Top-1 accuracy of the ID test bank as a fraction; None where it is not defined.

    It is not defined without labels or logits, of multi-label data, or when the head has other
    classes than the data (a pretrained head on one's own classes): logits are then used unchanged.
    ``by_shape`` says that the weights were matched by shape, ``remedy`` how a head for the classes
    of the data is made.

    Raises:
        UserError: the accuracy of weights matched by shape is no better than chance.
    """
    heads, accuracy = bank.num_classes, _top1_accuracy(bank)
    if not heads or bool((bank.labels == SEVERAL).any()):
        return None
    if accuracy is None:
        log.warning("the ID test set has no labels: ID accuracy cannot be checked")
        return None
    if heads != len(classes):
        log.warning(
            "the head has %s classes, the data %s, and no label is one of the head's: ID accuracy "
            "is not defined, detectors of logits read the head's own classes, those of features "
            "the labels. A head for your classes: %s",
            f"{heads:,}",
            f"{len(classes):,}",
            remedy,
        )
        return None
    if by_shape and Chance.of(bank.labels, heads).reached(accuracy):
        raise UserError(
            f"model.match=shape: ID accuracy is {accuracy:.1%}, no better than chance, so these "
            "weights are not those of this network: convert them by the names of their tensors"
        )
    return accuracy


def id_map(
    bank: FeatureBank, data: ImageDataset, model: str, resampling: Resampling
) -> pd.DataFrame | None:
    """The row ``id_map`` of ID test, of multi-label data; None where it is not defined.

    Args:
        bank: of ID test, or what is left of it without its features.
        data: the same images.
        model: written to the row.
        resampling: of the bootstrap; its seed is written to the row.
    """
    there, labelled = targets(data)
    if not labelled.any():
        return None
    if not isinstance(bank, FeatureBank):
        log.warning("ID mAP needs the logits of ID test: set task.keep_features=true")
        return None
    if bank.num_classes != there.shape[1]:
        log.warning(
            "ID mAP is not defined: the head has %d classes, the data %d",
            bank.num_classes,
            there.shape[1],
        )
        return None
    table = map_of(bank.logits.numpy()[labelled], there[labelled], model, resampling)
    log.info("ID mAP %.1f%%, the mean over the classes", 100 * float(table["value"].iloc[0]))
    return table


def held_out_accuracy(bank: FeatureBank, classes: Sequence[str]) -> tuple[float, int, float] | None:
    """Top-1 accuracy as a fraction, the number of labelled images; None if not defined.

    The third number is that of independent images
    (:func:`~ood_lab.metrics.resampling.group_intervals.effective_size`).

    See :func:`check_id_accuracy`.
    """
    labelled = bank.rows(bank.labels >= 0)
    if bank.num_classes != len(classes) or not len(labelled):
        return None
    right = (labelled.predictions == labelled.labels).double().numpy()
    groups = None if labelled.groups is None else labelled.groups.numpy()
    return float(right.mean()), len(labelled), effective_size(right, groups)


@dataclass(frozen=True)
class Chance:
    """What an answer that ignores the image reaches on labelled images: the largest class.

    Attributes:
        n: images with a label.
        share: of the largest class among them; 0 where there are none.
        label: that class.
        even: whether all ``classes`` are equally frequent, so that the share is ``1 / classes``.
        classes: of the network's head.
    """

    n: int
    share: float
    label: int
    even: bool
    classes: int

    @classmethod
    def of(cls, labels: Tensor, classes: int) -> Chance:
        """Counts ``labels [N]``, of which -1 is none."""
        counts = torch.bincount(labels[labels >= 0], minlength=max(classes, 1))
        n, most = int(counts.sum()), int(counts.max())
        return cls(n, most / max(n, 1), int(counts.argmax()), most * classes == n, classes)

    def reached(self, accuracy: float) -> bool:
        """Whether an accuracy on these images is no better."""
        return at_chance(accuracy, self.n, self.share)

    def words(self, names: Sequence[str]) -> str:
        """``33.3% of 3 classes``, or ``49.0%, the share of the largest class, 'dog'``."""
        if self.even:
            return f"{self.share:.1%} of {self.classes:,} classes"
        return f"{self.share:.1%}, the share of the largest class, '{names[self.label]}'"


def other_order(bank: FeatureBank, names: Sequence[str]) -> str | None:
    """The order of the classes that explains an accuracy at chance; None if none does.

    An offset is looked for first: output ``label + k`` for every label, modulo the number of
    outputs. Otherwise the permutation of the outputs that is right most often on every second
    image (Hungarian method on the confusion matrix, Kuhn 1955) has to be better than chance on
    the images between them, of which it has seen none.

    Args:
        bank: of the ID test set.
        names: of the classes, by label.
    """
    labelled = bank.labels >= 0
    labels, predictions = bank.labels[labelled], bank.predictions[labelled]
    if len(labels) < 2:
        return None
    n = max(len(names), int(predictions.max()) + 1)
    by_class = labels.argsort(stable=True)  # so that both halves have every class
    labels, predictions = labels[by_class], predictions[by_class]
    counts = torch.bincount(labels[::2] * n + predictions[::2], minlength=n * n).view(n, n)
    output = torch.as_tensor(linear_sum_assignment(counts.numpy(), maximize=True)[1])
    held_out = labels[1::2]
    accuracy = float((output[held_out] == predictions[1::2]).double().mean())
    offsets = torch.bincount((predictions - labels) % n, minlength=n) / len(labels)
    k, shifted = int(offsets.argmax()), float(offsets.max())
    if k and n > 2 and shifted > accuracy - 0.05 and _explains(shifted, labels, n):
        step = f"{k:,} higher" if k <= n // 2 else f"{n - k:,} lower"
        return (
            f"the order of the classes explains it: with every label {step} the accuracy is "
            f"{shifted:.1%}. Number the labels as the outputs of the network are"
        )
    if not _explains(accuracy, held_out, n):
        return None
    moved = [i for i in range(len(names)) if int(output[i]) != i and counts[i, output[i]] > 0]
    shown = [f"'{names[i]}' is output {int(output[i])}" for i in moved]
    return (
        f"the order of the classes explains it: in another order the accuracy is {accuracy:.1%} "
        f"({first_of(shown)}). Order the class names as the outputs of the network are"
    )


def _explains(accuracy: float, labels: Tensor, classes: int) -> bool:
    """Whether an order reaches far more than chance, which the best of many orders always does."""
    chance = Chance.of(labels, classes)
    least = min(3 * chance.share, (1 + chance.share) / 2)
    return accuracy >= least and not chance.reached(accuracy)


def accuracy_warnings(
    banks: Banks, val_labels: Tensor, record: RunRecord, advice: str
) -> tuple[bool, list[str]]:
    """Whether a network is no better than chance, and what to know of its answers, with advice.

    Args:
        banks: ``test``, and ``val`` where some detector needs it.
        val_labels: of the validation images.
        record: ``id_accuracy`` of :func:`check_id_accuracy`, ``classes``, and ``val_accuracy``
            where that was noted.
        advice: what to do about a network that does not know the classes, see :func:`advice_on`.
    """
    accuracy, names = record.id_accuracy, record.classes
    if accuracy is None:
        return False, []
    bank = banks["test"]
    chance = Chance.of(bank.labels, len(names))
    collapsed = _collapsed(bank, names)
    if not chance.reached(accuracy):
        return False, [f"{collapsed}: {advice}"] if collapsed else []
    val = record.val_accuracy
    if val is None and "val" in banks:
        val = _top1_accuracy(banks["val"])
    order = other_order(bank, names)
    if val is not None and not Chance.of(val_labels, len(names)).reached(val):
        cause = (
            f"on the validation images it is {val:.1%}: the network has learnt the classes. "
            "The labels of the test set are not those of train and val"
        ) + (
            f": {order}"
            if order
            else " (or its images are of quite another kind): compare them class by class "
            "(task=data_check), and the order of the classes where labels are numbers"
        )
    else:
        cause = order or "; ".join(filter(None, [collapsed, advice]))
    return True, [
        f"ID accuracy is {accuracy:.1%}, no better than chance ({chance.words(names)}), so the "
        f"scores of detectors mean nothing and none is marked as best: {cause}"
    ]


def _collapsed(bank: FeatureBank, names: Sequence[str]) -> str | None:
    """Says so where one class gets nearly all predictions, far more than its share of labels."""
    labelled = bank.labels >= 0
    shares = torch.bincount(bank.predictions[labelled], minlength=len(names)) / int(labelled.sum())
    label = int(shares.argmax())
    share, true = float(shares[label]), float((bank.labels[labelled] == label).double().mean())
    if share < NEARLY_ALL or share - true < BEYOND:
        return None
    return (
        f"the network names '{names[label]}' for {share:.1%} of the ID test images, of which "
        f"{true:.1%} are"
    )


def _top1_accuracy(bank: FeatureBank) -> float | None:
    labelled = bank.labels >= 0
    right = bank.predictions[labelled] == bank.labels[labelled]
    return float(right.double().mean()) if bool(labelled.any()) else None


def advice_on(backbone: Backbone, record: RunRecord) -> str:
    """What to do about a network at chance, by where its weights come from.

    ``record.training`` (``epochs``, ``steps``) says that this run has just trained it.
    """
    if trained := record.training:
        return (
            f"the training (epochs: {trained['epochs']:,}, steps: {trained['steps']:,}) has not "
            "taught it the classes: train longer (trainer.max_epochs), or with another learning "
            "rate (model.classifier.optimizer.lr)"
        )
    if backbone.text_head:
        return (
            "the usual causes are class names that this CLIP does not know, images unlike those "
            "that it was trained on, or a wrong checkpoint"
        )
    return CAUSES
