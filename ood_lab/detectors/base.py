"""The detector contract: ``fit(bank)``, ``score(bank)``, higher = more OOD."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import KW_ONLY
from inspect import signature
from types import MappingProxyType
from typing import Literal, Self, TypeVar, cast, get_args

import torch
from torch import Tensor

from ood_lab.common.arguments import check_values
from ood_lab.common.arguments import with_settings as with_settings
from ood_lab.common.english import listed
from ood_lab.common.errors import UserError
from ood_lab.common.grouping import without_keys
from ood_lab.common.tensor_file import Tensors
from ood_lab.detectors.support.compute_device import compute_device, on_device, within_device_memory
from ood_lab.features.bank import TILES, FeatureBank, other_network
from ood_lab.features.extraction_hooks import BankColumn
from ood_lab.features.moments import Moments
from ood_lab.models.head_kind import OF_NETWORKS, WORDS, Part, missing
from ood_lab.schema.run_record import Facts

FitSplit = Literal["train", "val"]
#: What a detector looks at: long tables are grouped by it, in this order.
InputType = Literal["logits", "features", "head", "network"]
#: What a detector costs: only logits, only features, the forward pass of an extraction with feature
#: maps, or besides it gradients or (a part of) the network again. ``detector=forward`` chooses all
#: that cost no more.
Cost = Literal["logits", "features", "forward", "again"]
#: From the cheapest.
COSTS: tuple[Cost, ...] = get_args(Cost)


class DetectorRefusal(UserError):
    """This detector cannot work on this backbone or data; the message names it and says why."""


class Detector(ABC):
    """A post-hoc detector over a :class:`FeatureBank`.

    Its settings are declared (:func:`with_settings`), or arguments of a constructor of its own,
    each an attribute of the same name: so a detector is described, saved and built again.

    Attributes:
        name: the key of its YAML; used in every message. In this package that is the name of the
            file, unless the class says another.
        reads: what it cannot do without (:data:`~ood_lab.models.head_kind.Part`): a network that
            does not give all of it is not scored; ``labels`` are those that ``fit`` reads.
        multilabel: although it reads logits, a head or labels, it suits a multi-label head: it
            needs neither a softmax nor one class per image.
        formula: the score, for the table of the docs, which takes the paper from the docstring.
        suspicious: in words, where an image gets a high score.
        moments: parts of the :class:`~ood_lab.features.moments.Moments` that ``fit`` reads
            (:meth:`statistics`): an extraction gathers them as it goes.
        needs_rows: False = in addition ``fit`` reads only labels and head of the bank, and no
            row of it.
        neighbours: it compares with the fit images one by one, and no fit image more raises a
            score.
        leaves_out: :meth:`left_out_scores` scores the fit images by one fit.
        has_maps: :meth:`maps` says which places of an image have a high score.
        chosen: the settings that a rule has chosen from the fit images, in words; empty before
            the fit, and where the authors' are kept.
        fit_split: split whose bank ``fit`` receives; None = nothing to fit.
        fitted: what ``fit`` learned, as plain tensors on the CPU; ``score`` reads nothing else of
            the fit split, so that a fitted detector can be saved without pickling.
        used: the settings that ``fit`` has worked with where they are not those of the constructor,
            and what it has counted.
        network: that of the bank it was fitted on (:func:`fit_detector`); features of another one
            are an error.
    """

    name: str = "detector"
    reads: tuple[Part, ...] = ("features",)
    multilabel: bool = False
    formula: str = ""
    suspicious: str = ""
    moments: tuple[str, ...] = ()
    needs_rows: bool = True
    neighbours: bool = False
    leaves_out: bool = False
    has_maps: bool = False
    chosen: str = ""
    fit_split: FitSplit | None = None
    fitted: Tensors = cast("Tensors", MappingProxyType({}))
    used: Facts = cast("Facts", MappingProxyType({}))
    network: str | None = None

    def __init_subclass__(cls) -> None:
        package, _, file = cls.__module__.rpartition(".")
        if package == __package__ and "name" not in vars(cls):
            cls.name = file

    def __init__(self) -> None:  # noqa: B027 (a detector without settings)
        pass

    def __post_init__(self) -> None:
        """Checks declared settings.

        Raises:
            UserError: a value of another type than is declared, or out of its range.
        """
        check_values(type(self), self.settings, f"detector.{self.name}")

    def __repr__(self) -> str:
        """One line: the class and the settings that are not its defaults."""
        defaults = signature(type(self).__init__).parameters
        changed = [
            f"{key}={value!r}"
            for key, value in self.settings.items()
            if value != defaults[key].default
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    @property
    def settings(self) -> Facts:
        """The arguments of the constructor.

        Raises:
            UserError: one of them is no attribute.
        """
        names = [*signature(type(self).__init__).parameters][1:]
        if lacking := [name for name in names if not hasattr(self, name)]:
            raise UserError(
                f"detector {self.name} does not keep its argument '{lacking[0]}': write "
                f"self.{lacking[0]} = {lacking[0]} in {type(self).__name__}.__init__"
            )
        return {name: getattr(self, name) for name in names}

    @property
    def input_type(self) -> InputType:
        """The group of tables that lists it: logits, features, both or a head, or the network."""
        if OF_NETWORKS & set(self.reads):
            return "network"
        if "features" not in self.reads:
            return "logits"
        return "head" if {"logits", "head"} & set(self.reads) else "features"

    @property
    def cost(self) -> Cost:
        """What it costs to run, as ``reads`` says."""
        if "gradients" in self.reads:
            return "again"
        if "maps" in self.reads:
            return "forward"
        return "features" if "features" in self.reads else "logits"

    @property
    def extraction_hook(self) -> BankColumn | None:
        """The column that the detector needs from the extraction pass, if any."""
        return None

    def statistics(self, bank: FeatureBank) -> Moments:
        """The sums over the fit bank that ``moments`` names, gathered once for all detectors."""
        return bank.derived.moments(self.moments, compute_device())

    def fitted_tensors(self, *names: str) -> tuple[Tensor, ...]:
        """Entries of ``fitted``, where detectors compute."""
        return tuple(on_device(self.fitted[name]) for name in names)

    def check_size(self, n: int, c: int) -> None:  # noqa: B027 (most detectors take any number)
        """Raises :class:`DetectorRefusal` when n fit images, for c classes, are too few.

        Known before any image is looked at; ``fit`` rejects them in any case.
        """

    def reads_rows(self, n: int, d: int) -> bool:
        """Whether a fit on n images of d features reads rows, see ``needs_rows``."""
        return self.needs_rows

    def fit_memory(self, n: int, d: int, c: int) -> int:
        """Bytes that ``fit`` works with and ``fitted`` holds, for n rows, d features, c classes.

        What grows only with d, or with c times d, and the arrays of a chunk (64 MiB) do not count.
        """
        return 0

    def less_memory(self, d: int, c: int, limit_bytes: int) -> str:
        """A way to need no more :meth:`fit_memory` than a limit, in words."""
        return "remove it from detector=[...]"

    def fit(self, bank: FeatureBank) -> Self:
        """Learns ``fitted`` from the bank of ``fit_split``."""
        return self

    @abstractmethod
    def score(self, bank: FeatureBank) -> Tensor:
        """Outlier score of every row, ``[N] float64`` on the CPU, higher = more OOD, any range."""

    def left_out_scores(self, bank: FeatureBank) -> Tensor:
        """Scores of the fit images, each by what is learned from the other groups, ``[N]``."""
        raise NotImplementedError

    def maps(self, bank: FeatureBank) -> Tensor:
        """Score of every place of each image, ``[N, h, w] float32``, where it ``has_maps``."""
        raise NotImplementedError

    def describe(self) -> Facts:
        """Every setting, after ``fit`` as ``used``."""
        unused = set() if self.fit_split else {"fit_split"}
        return without_keys(self.settings, unused) | self.used

    def used_settings(self) -> Facts:
        """:meth:`describe` and, in words, the settings ``chosen`` from the fit images."""
        return self.describe() | ({"chosen": self.chosen} if self.chosen else {})


@with_settings
class FittedDetector(Detector):
    """A detector that learns from a split, where it says nothing else from train.

    Args:
        fit_split: images that it learns from.
    """

    _: KW_ONLY
    fit_split: FitSplit = "train"


#: By the key of their YAML.
Detectors = Mapping[str, Detector]
#: Why detectors cannot work, by their name.
Reasons = dict[str, str]
_Fitted = TypeVar("_Fitted", bound=Detector)


def named(detectors: Detectors) -> Detectors:
    """Gives detectors their keys as names.

    Raises:
        UserError: one is no detector, or cannot be described: before any work with it.
    """
    for name, detector in detectors.items():
        if not isinstance(detector, Detector):
            raise UserError(
                f"detector {name} is of the type {type(detector).__name__}, no subclass of "
                "ood_lab.detectors.Detector: derive it from that class"
            )
        detector.name = name
        _ = detector.settings, detector.describe()
    return dict(detectors)


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
    of_classes = {"logits", "head", "labels"} & set(detector.reads)
    if not multilabel or detector.multilabel or not of_classes:
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
        raise UserError(
            f"{type(detector).__name__} takes {need / 1e9:.3g} GB for {n:,} x {d:,} features and "
            f"{c:,} classes; limit {limit_bytes / 1e9:.3g} GB: "
            f"{detector.less_memory(d, c, limit_bytes)}"
        )


def fit_detector(detector: _Fitted, bank: FeatureBank) -> _Fitted:
    """``detector.fit(bank)``, which notes the network of the bank and the tiles of an image.

    Raises:
        DetectorRefusal: the detector cannot work on such a bank.
        UserError: ``fit`` has left nothing in ``fitted``. Or the GPU has too little memory.
    """
    detector.network, detector.fitted, detector.used = bank.network, {}, {}
    with within_device_memory(detector.name):
        detector.fit(bank.of_tiles)
    if TILES in bank.columns:
        detector.used = {**detector.used, "tiles": bank.columns[TILES].shape[1]}
    if not detector.fitted:
        raise UserError(
            f"{detector.name} has learned nothing: its fit stores tensors by name in self.fitted"
        )
    return detector


def of_images(scores: Tensor, bank: FeatureBank) -> Tensor:
    """The largest score of each image, ``[N]``, of those of its tiles, if it has any."""
    tiles = bank.columns.get(TILES)
    return scores if tiles is None else scores.view(tiles.shape[:2]).amax(dim=1)


def checked_score(detector: Detector, bank: FeatureBank) -> Tensor:
    """``detector.score(bank)``, ``[N] float64`` on the CPU, guaranteed finite.

    Of images that passed as tiles, the largest of their scores.

    Raises:
        UserError: it is not fitted, or on features of another network; it gives another number of
            scores, NaN or infinity: the message names it and the first rows. Or the GPU has too
            little memory.
    """
    if detector.fit_split and not detector.fitted:
        raise UserError(f"{detector.name} is not fitted: call fit first")
    if other_network(detector.network, bank.network):
        raise UserError(
            f"{detector.name} was fitted on features of another network, or of other weights, than "
            "those it should score: extract both with the same network"
        )
    with within_device_memory(detector.name):
        scores = of_images(torch.as_tensor(detector.score(bank.of_tiles)).double().cpu(), bank)
    if scores.shape != (len(bank),):
        raise UserError(
            f"{detector.name} gave scores of shape {list(scores.shape)} for {len(bank):,} images: "
            "its score returns one number per image, [N]"
        )
    bad = torch.nonzero(~scores.isfinite()).flatten()
    if len(bad):
        rows = ", ".join(str(int(row)) for row in bank.index[bad[:5]])
        raise UserError(
            f"{detector.name} gave NaN or infinite scores for {len(bad):,} of {len(bank):,} images "
            f"(first rows: {rows}): check the features of these rows, or leave the detector out"
        )
    return scores
