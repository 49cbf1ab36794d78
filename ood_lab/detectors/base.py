"""The detector contract: ``fit(bank)``, ``score(bank)``, higher = more OOD."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal, Self

from torch import Tensor

from ood_lab.errors import UserError
from ood_lab.features.bank import FeatureBank
from ood_lab.features.column import Column

FitSplit = Literal["train", "val"]


class DetectorRefusal(UserError):
    """This detector cannot work on this backbone or data; the message names it and says why."""


class Detector(ABC):
    """A post-hoc detector over a :class:`FeatureBank`.

    Attributes:
        name: the key of its YAML; used in every message.
        fit_split: split whose bank ``fit`` receives; None = nothing to fit.
        fitted: what ``fit`` learned, as plain tensors; ``score`` reads nothing else of the fit
            split, so that a fitted detector can be saved without pickling.
    """

    name: str = "detector"
    fit_split: FitSplit | None = None

    def __init__(self) -> None:
        self.fitted: dict[str, Tensor] = {}

    @property
    def column(self) -> Column | None:
        """What the detector needs from the extraction pass, if anything."""
        return None

    def check(self, bank: FeatureBank) -> None:
        """Raises :class:`DetectorRefusal` when the detector cannot work on such a bank."""

    def fit_memory(self, n: int, d: int, c: int) -> int:
        """Bytes that ``fit`` and ``fitted`` need beyond the bank itself (n rows, d, c classes)."""
        return 0

    def fit(self, bank: FeatureBank) -> Self:
        """Learns ``fitted`` from the bank of ``fit_split``."""
        return self

    @abstractmethod
    def score(self, bank: FeatureBank) -> Tensor:
        """Outlier score of every row, ``[N] float64``, higher = more OOD, in any range."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Every hyperparameter as used (after ``fit``, with the values a rule has chosen)."""
