"""Requirements of detectors on their settings and on the bank that they are given."""

from __future__ import annotations

import logging
from typing import Annotated

from pydantic import AfterValidator
from torch import Tensor

from ood_lab.common.tensor_arithmetic import all_finite
from ood_lab.detectors.base import Detector, DetectorRefusal, unserved
from ood_lab.features.bank import FeatureBank
from ood_lab.features.extraction_hooks import BankColumn
from ood_lab.models.head_kind import HeadKind

log = logging.getLogger(__name__)


def _percentile(value: float) -> float:
    if not 0 <= value <= 100 or 0 < value < 1:
        raise ValueError("a percentile from 0 to 100 (90, not 0.9)")
    return value


Percentile = Annotated[float, AfterValidator(_percentile)]


def require_column(detector: Detector, bank: FeatureBank, column: BankColumn) -> Tensor:
    """The column's values, ``[N, ...]``, or rejects a bank that was extracted without it."""
    if column.key not in bank.columns:
        raise DetectorRefusal(
            f"{detector.name}: the features were extracted without '{column.key}'; "
            "extract them again with this detector chosen"
        )
    return bank.columns[column.key]


def require_labels(detector: Detector, bank: FeatureBank) -> None:
    """Rejects a fit split without class labels, of the head where it reads such.

    Raises:
        DetectorRefusal: the labels are absent, or of other classes.
    """
    of_head, gives = bank.label_classes is None, HeadKind.OTHER_CLASSES.gives
    if not of_head and (reason := unserved(detector.name, detector.reads, gives, "this one")):
        raise DetectorRefusal(reason)
    labels, classes = bank.labels[bank.labels >= 0].unique(), bank.classes
    needs = f"{type(detector).__name__} needs class labels in the {detector.fit_split} split"
    if len(labels) == 0:
        several = "the images have several classes" if bank.multilabel else None
        raise DetectorRefusal(f"{needs}: {several or f'all {len(bank):,} are -1'}")
    if len(labels) == 1 and classes > 1:
        there = f"the head has {classes:,}" if of_head else f"there are {classes:,} classes"
        raise DetectorRefusal(f"{needs}: all are {int(labels)}, but {there}")


def one_class(bank: FeatureBank) -> bool:
    """Whether no image has a label, since there are no logits or the head is multi-label."""
    unlabelled = not bool((bank.labels >= 0).any())
    return unlabelled and (bank.num_classes == 0 or bank.multilabel)


def require_two_classes(detector: Detector, bank: FeatureBank) -> None:
    """Rejects a head of one class, which leaves nothing to compare (:class:`DetectorRefusal`)."""
    if bank.num_classes < 2:
        raise DetectorRefusal(f"{type(detector).__name__} needs a head of two classes or more")


def require_finite(detector: Detector, statistic: Tensor) -> Tensor:
    """Returns ``statistic`` of the fit split, or rejects one with NaN or infinite entries."""
    if not all_finite(statistic):
        raise DetectorRefusal(
            f"{type(detector).__name__}: the {detector.fit_split} features hold NaN or infinity"
        )
    return statistic


def require_non_negative(detector: Detector, bank: FeatureBank, force: bool) -> None:
    """Rejects features below 0, where a method presumes ReLU (:class:`DetectorRefusal`).

    Not where ``force`` accepts them.
    """
    if not force and (share := bank.derived.below_zero):
        text = f"{share:.0%}" if share >= 0.01 else "under 1%"
        raise DetectorRefusal(
            f"{type(detector).__name__} needs non-negative features: {text} are below 0: "
            f"remove it from detector=[...], or set detector.{detector.name}.force=true"
        )


def absent_classes(bank: FeatureBank, present: Tensor) -> list[int]:
    """Classes that are not among those ``present``, ascending."""
    return sorted(set(range(bank.classes)) - set(present.tolist()))


def warn_classes(detector: Detector, classes: list[int], problem: str) -> None:
    """Logs which classes of the fit split a detector treats specially."""
    if classes:
        first = ", ".join(map(str, classes[:10])) + (", ..." if len(classes) > 10 else "")
        log.warning("%s: %d classes (%s) %s", type(detector).__name__, len(classes), first, problem)
