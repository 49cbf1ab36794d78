"""p-values and a verdict for a fitted detector, from scores of ID images."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from numpy.typing import ArrayLike
from pydantic import FiniteFloat
from torch import Tensor

from ood_lab.common.arguments import InnerShare, check_values
from ood_lab.common.english import counted
from ood_lab.common.errors import UserError
from ood_lab.common.tensor_arithmetic import permutation
from ood_lab.common.tensor_file import Tensors
from ood_lab.detectors.base import (
    Detector,
    DetectorRefusal,
    checked_score,
    fit_detector,
    of_images,
)
from ood_lab.features.bank import FeatureBank
from ood_lab.features.image_groups import group_codes, group_count, group_weights, groups_of

#: The largest false alarm rate on ID images, where the user names none.
DEFAULT_ALPHA = 0.05
#: Digits after the point of sums of weights, which are fractions such as 1/3.
_DIGITS = 9


def least_held_out(alpha: float) -> int:
    """The smallest n at which a p-value, which is at least ``1 / (n + 1)``, can be at most alpha.

    Judged by the division itself, as p-values are: 19 images for 0.05.
    """
    n = max(math.ceil(1 / alpha) - 2, 0)
    while 1 / (n + 1) > alpha:
        n += 1
    return n


def too_few(n: int, alpha: float | None, unit: str = "image") -> str | None:
    """Says that no p-value of ``n`` ID images reaches alpha; None where one does, or no alpha.

    ``unit`` is what n counts: images, or groups of them.
    """
    if alpha is None or n >= (least := least_held_out(alpha)):
        return None
    return (
        f"No single image can be flagged: alpha={alpha:g} needs {least:,} ID {unit}s, there are "
        f"{n:,}, and no p-value is below 1/{n + 1:,} = {1 / (n + 1):.2g}."
    )


def _scores(values: ArrayLike) -> Tensor:
    """``[N] float64``.

    Raises:
        UserError: another shape, or NaN.
    """
    scores = torch.as_tensor(values).detach().double()
    if scores.ndim != 1:
        raise UserError(f"scores {list(scores.shape)} should be [N], one number per image")
    if bool(scores.isnan().any()):
        raise UserError("scores have NaN values: has the network given NaN features?")
    return scores


@dataclass(frozen=True)
class CalibratedDetector:
    r"""A fitted detector and what its scores mean.

    The p-value of a score s, from n ID scores, is
    :math:`p(s) = (1 + \#\{\text{ID} \ge s\}) / (n + 1)`, and an image is OOD exactly where
    p(s) ≤ alpha. For an ID image exchangeable with held-out ones that happens with probability
    at most alpha (Vovk et al. 2005; for OOD detection arXiv 2104.08279). The ID images may also be
    those of the fit: :func:`~ood_lab.detectors.deployment.calibration.cross_fitted_scores` says
    what is then known. Where images belong together, each of K groups has weight one,
    :math:`p(s) = \big(1 + \sum_k \frac{1}{n_k} \#\{i \in k: s_{ki} \ge s\}\big) / (K + 1)`, and the
    rate is that of one image of a new group, exchangeable with these (hierarchical data: Lee,
    Barber and Willett, arXiv 2306.06342). With a given threshold t instead of an alpha, an image is
    OOD exactly where s ≥ t. Where :attr:`shortage` says that n is too small for alpha, no image is.

    Attributes:
        detector: fitted.
        id_scores: of ID images, ``[n] float64``, ascending.
        alpha: the largest false alarm rate on ID images; between 0 and 1. None = the threshold is
            given.
        classes: names of the ID classes.
        weights_sha256: of the backbone whose features it was fitted on.
        transform: of the images, printed.
        given_threshold: the lowest score that is OOD; None = alpha decides.
        pixel_range: values that became black and white in training images of more than 8 bits;
            None = the whole range of 16 bits.
        calibration: where ``id_scores`` come from.
        id_groups: of each ID image, ``[n] int64``; None = each is its own.

    Raises:
        UserError: alpha is out of range, the threshold is not finite, or there is no ID score.
        ValueError: both an alpha and a threshold, or neither.
    """

    detector: Detector
    id_scores: Tensor
    alpha: InnerShare | None
    classes: Sequence[str]
    weights_sha256: str
    transform: str
    given_threshold: FiniteFloat | None = None
    pixel_range: tuple[float, float] | None = None
    calibration: Calibration = "held-out"
    id_groups: Tensor | None = None

    def __post_init__(self) -> None:
        check_values(type(self), vars(self), self.detector.name)
        if (self.alpha is None) == (self.given_threshold is None):
            raise ValueError("give either an alpha or a threshold")
        if len(set(self.classes)) < len(self.classes):
            raise UserError(f"classes={self.classes!r}: give a list of different class names")
        if not len(self.id_scores):
            raise UserError(f"{self.detector.name}: there are no held-out ID images (val)")

    @classmethod
    def of(
        cls,
        detector: Detector,
        id_scores: ArrayLike,
        alpha: float | None,
        *,
        classes: Sequence[str] = (),
        weights_sha256: str,
        transform: str,
        given_threshold: float | None = None,
        calibration: Calibration = "held-out",
        groups: ArrayLike | None = None,
    ) -> Self:
        """From scores ``[n]`` of ID images that the detector was not fitted on, in any order.

        ``groups`` are those of the images, ``[n]``; None = each image is its own.

        Raises:
            UserError: see the class; or these are no such scores.
        """
        ordered, order = _scores(id_scores).cpu().sort()
        codes = groups_of(groups, len(ordered))
        if codes is not None:
            codes = None if len(codes.unique()) == len(codes) else codes[order]
        return cls(
            detector,
            ordered,
            alpha,
            classes,
            weights_sha256,
            transform,
            given_threshold,
            calibration=calibration,
            id_groups=codes,
        )

    def at(self, alpha: float) -> Self:
        """The same detector at another false alarm rate."""
        return replace(self, alpha=alpha, given_threshold=None)

    def at_threshold(self, threshold: float) -> Self:
        """The same detector with a given threshold: an image is OOD from this score on."""
        return replace(self, alpha=None, given_threshold=threshold)

    @property
    def threshold(self) -> float:
        """The given threshold, or the ID score above which an image is OOD (p ≤ alpha).

        Infinite where :attr:`shortage` says that no image is.
        """
        if self.given_threshold is not None:
            return self.given_threshold
        if self.shortage:
            return math.inf
        ordered = self.id_scores
        return float(ordered[~self.is_ood(ordered)][-1])

    @property
    def rule(self) -> str:
        """``score > threshold`` where alpha decides, ``score >= threshold`` of a given one."""
        return "score > threshold" if self.given_threshold is None else "score >= threshold"

    @property
    def id_tensors(self) -> Tensors:
        """What p-values are made of, by name."""
        groups = {} if self.id_groups is None else {"id_groups": self.id_groups}
        return {"id_scores": self.id_scores} | groups

    @property
    def groups(self) -> int:
        """K, the number of groups of ID images; of images without groups, n."""
        return len(self.id_scores if self.id_groups is None else self.id_groups.unique())

    @property
    def id_in_words(self) -> str:
        """``180 ID images``, or ``180 ID images in 45 groups``."""
        images = counted(len(self.id_scores), "ID image")
        in_groups = f"{images} in {counted(self.groups, 'group')}"
        return images if self.id_groups is None else in_groups

    @property
    def shortage(self) -> str | None:
        """Says that there are too few ID images or groups for alpha; None where there are not."""
        return too_few(self.groups, self.alpha, "image" if self.id_groups is None else "group")

    @property
    def false_positive_rate(self) -> float:
        """Share of the ID images that the rule flags, each group with weight one."""
        flagged = self.is_ood(self.id_scores).double()
        weights = 1.0 if self.id_groups is None else group_weights(self.id_groups)
        return float((flagged * weights).sum()) / self.groups

    @property
    def false_alarms(self) -> int:
        """ID images, or groups, that the rule flags; with alpha, as many as where none are tied.

        Those of rank r = 1, 2, ... from the top with ``(1 + r) / (K + 1) <= alpha``; of groups that
        a given threshold flags in part, the sum of these parts, rounded up.
        """
        if self.alpha is None:
            return math.ceil(round(self.false_positive_rate * self.groups, _DIGITS))
        n = self.groups
        return int((torch.arange(2, n + 2).double() / (n + 1) <= self.alpha).sum())

    def score(self, bank: FeatureBank) -> Tensor:
        """Scores of the rows of a bank, ``[N] float64``, higher = more OOD.

        Raises:
            UserError: the head of the bank has another number of classes than there are names; see
                :func:`~ood_lab.detectors.base.checked_score`.
        """
        if self.classes and len(bank.head_weight) != len(self.classes):
            raise UserError(
                f"{self.detector.name} was calibrated with {len(self.classes):,} class names, the "
                f"network has {len(bank.head_weight):,} outputs: give a name for each output"
            )
        return checked_score(self.detector, bank)

    def p_values(self, scores: ArrayLike) -> Tensor:
        """Conformal p-values (see the class) of scores ``[N]``: ``[N] float64`` in (0, 1]."""
        first = torch.searchsorted(self.id_scores, _scores(scores).contiguous())
        if self.id_groups is None:
            at_least = (len(self.id_scores) - first).double()
        else:  # whole groups are whole numbers, whose p-value may be alpha itself
            weights = group_weights(self.id_groups)
            sums = weights.flip(0).cumsum(0).flip(0).round(decimals=_DIGITS)
            at_least = torch.cat([sums, sums.new_zeros(1)])[first]
        return (1 + at_least) / (self.groups + 1)

    def is_ood(self, scores: ArrayLike) -> Tensor:
        """``[N] bool``: the p-value is at most alpha, or the score at least the given threshold."""
        if self.alpha is None:
            return _scores(scores) >= self.threshold
        return self.p_values(scores) <= self.alpha

    def check_backbone(self, weights_sha256: str, transform: str) -> None:
        """Raises :class:`UserError` where its scores would mean nothing."""
        if weights_sha256 != self.weights_sha256:
            raise UserError(
                f"{self.detector.name} was fitted on a backbone with weights "
                f"{self.weights_sha256[:12]}, this one has {weights_sha256[:12]}: give the ckpt "
                "that it was fitted on, or fit it again"
            )
        if transform != self.transform:
            raise UserError(
                f"{self.detector.name} was fitted on images transformed by {self.transform}, the "
                f"backbone now uses {transform}: give the same input settings, or fit it again"
            )


#: By name.
CalibratedDetectors = Mapping[str, CalibratedDetector]


#: Where the scores come from that p-values are ranks among.
Calibration = Literal["held-out", "leave-one-out", "10-fold"]
#: Parts, each of which is scored by a fit on the others.
FOLDS = 10
#: Of more images a detector of neighbours is also fitted on folds: a tenth changes little.
LEAVE_ONE_OUT = 300


def cross_fitting_of(detector: Detector, bank: FeatureBank) -> Calibration:
    """The way in which :func:`cross_fitted_scores` scores the images of a bank."""
    if detector.fit_split is None:
        return "held-out"
    single = detector.neighbours and group_count(bank) <= LEAVE_ONE_OUT
    single |= detector.leaves_out
    return "leave-one-out" if single else "10-fold"


def cross_fitted_scores(detector: Detector, bank: FeatureBank, seed: int = 0) -> Tensor:
    r"""Score of every image of the fit bank by a fit on other images, ``[n] float64``.

    :math:`s_i = s(x_i; \{x_j : j \notin F(i)\})`, F(i) the fold of image i: only itself for a
    detector of neighbours, else one of :data:`FOLDS` random parts. Images that belong together are
    in one fold, and n is their number of groups. A new image x is then scored by the fit on all,
    and ranked among these. What is known of the p-values:

    - **Neighbours** (:attr:`~ood_lab.detectors.base.Detector.neighbours`): a fit image more never
      raises a score. With x among the others, the scores of all n + 1 groups are exchangeable, and
      s_i is at least as high without x as with it. So no p-value is smaller than that of full
      conformal prediction (Vovk et al. 2005), and ``P(p <= alpha) <= alpha`` holds exactly: for
      ``nnguide`` where all log Σ exp z are positive, and where ``max_bank`` keeps all images.
    - **Others**: jackknife+ and CV+ (Barber et al. 2021, arXiv 1905.02928) bound the rate by
      2 alpha where x, too, is scored by the fits without each fold. One fit on all has that bound
      where it is stable; docs/results/uncertainty.md measures the rates.

    What ``detector`` chose from n images (``auto``) stays unchanged in all these fits, and so does
    what it was given.

    Args:
        detector: fitted on ``bank``.
        bank: n images; in addition to features with what the detector reads.
        seed: of the folds.

    Raises:
        DetectorRefusal: fewer than two groups, or too few of them for a fit without a fold.
        UserError: see :func:`~ood_lab.detectors.base.checked_score`.
    """
    codes, n = group_codes(bank), group_count(bank)
    if detector.fit_split is None:
        return checked_score(detector, bank)
    if n < 2:
        raise DetectorRefusal(f"{detector.name}: one image or group cannot be compared with itself")
    if detector.leaves_out:
        return of_images(detector.left_out_scores(bank.of_tiles), bank)
    single = cross_fitting_of(detector, bank) == "leave-one-out"
    order = permutation(n, seed)
    fold = torch.empty(n, dtype=torch.int64)
    fold[order] = torch.arange(n) % (n if single else min(FOLDS, n))
    scores = torch.empty(len(bank), dtype=torch.float64)
    for part in range(int(fold.max()) + 1):
        inside = fold[codes] == part
        fitted = fit_detector(_as_chosen(detector), bank.rows(~inside))
        scores[inside] = checked_score(fitted, bank.rows(inside))
    return scores


def _as_chosen(detector: Detector) -> Detector:
    """A copy of the detector with the settings that were chosen from all images."""
    fresh, used = copy(detector), detector.describe()
    for name, value in detector.settings.items():
        if value == "auto":
            setattr(fresh, name, used[name])
    return fresh
