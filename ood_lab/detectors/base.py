"""The detector contract: ``fit(bank)``, ``score(bank)``, higher = more OOD."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from inspect import signature
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor

from ood_lab.common.english import listed
from ood_lab.common.errors import UserError
from ood_lab.common.tensor_file import Tensors
from ood_lab.detectors.support.compute_device import compute_device, on_device, within_device_memory
from ood_lab.features.bank import FeatureBank, other_network
from ood_lab.features.extraction_hooks import BankColumn
from ood_lab.features.moments import Moments
from ood_lab.models.head_kind import OF_NETWORKS, WORDS, Part, missing

FitSplit = Literal["train", "val"]
#: What a detector looks at: long tables are grouped by it, in this order.
InputType = Literal["logits", "features", "head", "network"]
#: What a detector reads that says no more than its input type.
_READS: dict[InputType, tuple[Part, ...]] = {
    "logits": ("logits", "level"),
    "features": ("features",),
    "head": ("features", "logits", "level", "head"),
    "network": ("features", "logits", "level", "head", "maps"),
}
#: What a detector needs of the network, from the cheapest; ``detector=forward`` chooses all that
#: need no more. ``again``: besides the forward pass, gradients or (a part of) the network again.
Needs = Literal["logits", "features", "forward", "again"]


class DetectorRefusal(UserError):
    """This detector cannot work on this backbone or data; the message names it and says why."""


class Detector(ABC):
    """A post-hoc detector over a :class:`FeatureBank`.

    Attributes:
        name: the key of its YAML; used in every message.
        reads: what it cannot do without (:data:`~ood_lab.models.head_kind.Part`): a network that
            does not give all of it is not scored; ``labels`` are those that ``fit`` reads.
        input_type: the group of tables that lists it, as ``reads`` says: only the logits, only the
            features, features and head or logits, or the network during extraction.
            A class may declare only this.
        multilabel: it suits a multi-label head: it needs neither a softmax nor one class per image.
            By default, only where it reads no logits, no head and no labels.
        formula: the score, and ``source``, its paper, for the table of the docs.
        suspicious: in words, where an image gets a high score.
        moments: parts of the :class:`~ood_lab.features.moments.Moments` that ``fit`` reads
            (:meth:`statistics`): an extraction gathers them as it goes.
        needs_rows: False = in addition ``fit`` reads only labels and head of the bank, and no
            row of it.
        cost: what it adds to the extraction pass.
        neighbours: it compares with the fit images one by one, and no fit image more raises a
            score.
        chosen: the settings that a rule has chosen from the fit images, in words; empty before
            the fit, and where the authors' are kept.
        fit_split: split whose bank ``fit`` receives; None = nothing to fit.
        fitted: what ``fit`` learned, as plain tensors on the CPU; ``score`` reads nothing else of
            the fit split, so that a fitted detector can be saved without pickling.
        network: that of the bank it was fitted on; features of another one are an error.
        arguments: what the constructor was called with (positional, by keyword), so that a saved
            detector can be built again.
    """

    name: str = "detector"
    reads: tuple[Part, ...] = ("features",)
    input_type: InputType = "features"
    multilabel: bool = True
    formula: str = ""
    source: str = ""
    suspicious: str = ""
    moments: tuple[str, ...] = ()
    needs_rows: bool = True
    cost: str = ""
    neighbours: bool = False
    chosen: str = ""
    fit_split: FitSplit | None = None
    network: str | None = None
    arguments: tuple[tuple[Any, ...], dict[str, Any]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Of ``reads`` and ``input_type``, makes the one that a class omits."""
        super().__init_subclass__(**kwargs)
        declared = vars(cls).keys() & {"reads", "input_type"}
        if declared == {"reads"}:
            cls.input_type = _input_type(cls.reads)
        elif declared == {"input_type"}:
            cls.reads = _READS[cls.input_type]
        if declared and "multilabel" not in vars(cls):
            cls.multilabel = not {"logits", "head", "labels"} & set(cls.reads)
        for method, check in (("fit", _noting_network), ("score", _comparing_network)):
            if method in vars(cls):
                setattr(cls, method, check(vars(cls)[method]))

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Notes the arguments here, so that no subclass has to."""
        detector = super().__new__(cls)
        detector.arguments = args, kwargs
        return detector

    def __init__(self, fit_split: FitSplit | None = None) -> None:
        if fit_split not in (None, *get_args(FitSplit)):
            raise UserError(f"detector.{self.name}.fit_split={fit_split}: choose train or val")
        if fit_split is not None:
            self.fit_split = fit_split
        self.fitted: Tensors = {}

    def __repr__(self) -> str:
        """One line: the class and the arguments it was made with."""
        positional, keyword = self.arguments
        shown = [*map(repr, positional), *(f"{key}={value!r}" for key, value in keyword.items())]
        return f"{type(self).__name__}({', '.join(shown)})"

    @property
    def cost_rank(self) -> int:
        """What it costs to run, from the cheapest.

        0 = logits, 1 = features (and the head), 2 = feature maps, 3 = gradients or a second pass.
        """
        if self.input_type != "network":
            return 0 if self.input_type == "logits" else 1
        slow = self.extraction_hook is not None and self.extraction_hook.needs_input_grad
        return 3 if slow or self.second_pass_hook is not None else 2

    @property
    def needs(self) -> Needs:
        """What it needs of the network, see :data:`Needs`."""
        if self.second_pass_hook is not None:
            return "again"
        if (column := self.extraction_hook) is None:
            return "logits" if self.input_type == "logits" else "features"
        return "again" if column.needs_input_grad or column.runs_again else "forward"

    @property
    def extraction_hook(self) -> BankColumn | None:
        """The column that the detector needs from the extraction pass, if any."""
        return None

    @property
    def second_pass_hook(self) -> BankColumn | None:
        """The column of a second pass over the images to be scored, from ``fitted``, if any.

        Declared from the start; once fitted, its key says what was learned, and ``score`` reads it
        from the bank. A detector that declares one has a ``extraction_hook`` that it is fitted on,
        too.
        """
        return None

    def statistics(self, bank: FeatureBank) -> Moments:
        """The sums over the fit bank that ``moments`` names, gathered once for all detectors."""
        return bank.derived.moments(self.moments, compute_device())

    def fitted_tensors(self, *names: str) -> tuple[Tensor, ...]:
        """Entries of ``fitted``, where detectors compute."""
        return tuple(on_device(self.fitted[name]) for name in names)

    def check(self, bank: FeatureBank) -> None:  # noqa: B027 (most detectors take any bank)
        """Raises :class:`DetectorRefusal` when the detector cannot work on such a bank.

        ``bank`` is that of ``fit_split``, or any scored bank where nothing is fitted. ``fit``
        (``score`` where nothing is fitted) calls it, so that calling it earlier only saves time.
        """

    def check_size(self, n: int, c: int) -> None:  # noqa: B027 (most detectors take any number)
        """Raises :class:`DetectorRefusal` when n fit images, for c classes, are too few.

        Known before any image is looked at; ``fit`` rejects them in any case.
        """

    def reads_rows(self, n: int, d: int) -> bool:
        """Whether a fit on n images of d features reads rows, see ``needs_rows``."""
        return self.needs_rows

    def fit_memory(self, n: int, d: int, c: int) -> int:
        """Bytes that ``fit`` works with and ``fitted`` holds, for n rows, d features, c classes."""
        return 0

    def memory_report(self, n: int, d: int, c: int, limit_bytes: int) -> tuple[str, str]:
        """The part that needs :meth:`fit_memory`, and a way to need less, in words."""
        return f"fit on {n:,} x {d:,} features, {c:,} classes", "remove it from detector=[...]"

    def fit(self, bank: FeatureBank) -> Self:
        """Learns ``fitted`` from the bank of ``fit_split``."""
        return self

    @abstractmethod
    def score(self, bank: FeatureBank) -> Tensor:
        """Outlier score of every row, ``[N] float64`` on the CPU, higher = more OOD, any range."""

    def describe(self) -> dict[str, Any]:
        """Every hyperparameter as used (after ``fit``, with the values a rule has chosen).

        By default the attributes named as the arguments of the constructor.
        """
        _, *names = signature(type(self).__init__).parameters
        used = {name: getattr(self, name) for name in names}
        return used if self.fit_split else {k: v for k, v in used.items() if k != "fit_split"}

    def settings(self) -> dict[str, Any]:
        """:meth:`describe` and, in words, the settings ``chosen`` from the fit images."""
        return self.describe() | ({"chosen": self.chosen} if self.chosen else {})


#: By the key of their YAML.
Detectors = Mapping[str, Detector]


def _noting_network(fit: Callable[..., Any]) -> Callable[..., Any]:
    """``fit``, which notes the network of its bank."""

    @wraps(fit)
    def noting(self: Detector, bank: FeatureBank, *args: Any, **kwargs: Any) -> Any:
        self.network = bank.network
        return fit(self, bank, *args, **kwargs)

    return noting


def _comparing_network(score: Callable[..., Any]) -> Callable[..., Any]:
    """``score``, which raises an error for features of another network than that of the fit."""

    @wraps(score)
    def comparing(self: Detector, bank: FeatureBank, *args: Any, **kwargs: Any) -> Any:
        if other_network(self.network, bank.network):
            raise UserError(
                f"{self.name} was fitted on features of another network, or of other weights, than "
                "those it should score: extract both with the same network"
            )
        return score(self, bank, *args, **kwargs)

    return comparing


def _input_type(reads: Collection[Part]) -> InputType:
    if OF_NETWORKS & set(reads):
        return "network"
    if "features" not in reads:
        return "logits"
    return "head" if {"logits", "head"} & set(reads) else "features"


def unserved(name: str, reads: Collection[Part], gives: Collection[Part], of: str) -> str | None:
    """Why a detector cannot be scored on a network; None where it can.

    Args:
        name: of the detector.
        reads: what it needs; labels are the data's affair.
        gives: what there is.
        of: the network, or what stands for it, in words.
    """
    lacking = [WORDS[part] for part in missing(reads, gives)]
    return f"{name} needs {listed(lacking)}, which {of} does not give" if lacking else None


def unsuited(name: str, detector: Detector, multilabel: bool) -> str | None:
    """Why a detector does not suit a multi-label head; None where it does, or there is none."""
    if detector.multilabel or not multilabel:
        return None
    return f"{name} assumes one class per image, and the head is multi-label"


def check_memory(detector: Detector, n: int, d: int, c: int, limit_bytes: int) -> None:
    """Stops a fit that would not fit into memory, before it starts.

    Args:
        detector: not yet fitted.
        n: rows of the fit split.
        d: features per row.
        c: classes of the head.
        limit_bytes: what ``detector.fit_memory(n, d, c)`` may not exceed.

    Raises:
        UserError: the estimate exceeds the limit.
    """
    need = detector.fit_memory(n, d, c)
    if need > limit_bytes:
        what, remedy = detector.memory_report(n, d, c, limit_bytes)
        raise UserError(
            f"{type(detector).__name__} {what} = {need / 1e9:.3g} GB; "
            f"limit {limit_bytes / 1e9:.3g} GB: {remedy}"
        )


def checked_score(detector: Detector, bank: FeatureBank) -> Tensor:
    """``detector.score(bank)``, ``[N] float64``, guaranteed finite.

    Raises:
        UserError: NaN or infinite scores; names the detector and the first rows. Or the GPU has
            too little memory.
    """
    with within_device_memory(detector.name):
        scores = detector.score(bank).double()
    if scores.shape != (len(bank),):
        raise RuntimeError(
            f"{detector.name} gave scores {tuple(scores.shape)} for {len(bank)} rows"
        )
    bad = torch.nonzero(~scores.isfinite()).flatten()
    if len(bad):
        rows = ", ".join(str(int(row)) for row in bank.index[bad[:5]])
        raise UserError(
            f"{detector.name} gave NaN or infinite scores for {len(bad):,} of {len(bank):,} images "
            f"(first rows: {rows}): check the features of these rows, or leave the detector out"
        )
    return scores
