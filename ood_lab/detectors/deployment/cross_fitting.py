"""Scores of the very images that a detector learned from, each by a fit that has not seen it."""

from __future__ import annotations

from copy import copy
from typing import Literal

import torch
from torch import Tensor

from ood_lab.detectors.base import (
    Detector,
    DetectorRefusal,
    checked_score,
    fit_detector,
    of_images,
)
from ood_lab.features.bank import FeatureBank
from ood_lab.features.image_groups import group_codes, group_count

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
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
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
