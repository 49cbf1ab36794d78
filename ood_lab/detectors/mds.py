"""MDS: Mahalanobis distance to the closest class mean."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from ood_lab.detectors.base import DetectorRefusal, FittedDetector, with_settings
from ood_lab.detectors.support.chunked_arithmetic import map_rows, squared_distances
from ood_lab.detectors.support.requirements import (
    absent_classes,
    one_class,
    require_finite,
    require_labels,
    warn_classes,
)
from ood_lab.detectors.support.subspace import is_few, shrunk, whitening
from ood_lab.features.bank import FeatureBank
from ood_lab.features.image_groups import group_count, unit_of
from ood_lab.features.moments import Moments


@with_settings
class MDS(FittedDetector):
    r"""Squared Mahalanobis distance to the closest class mean (arXiv 1807.03888).

    .. math::
        \Sigma = \frac1N \sum_i (x_i - \mu_{y_i})(x_i - \mu_{y_i})^\top, \qquad
        s(x) = \min_c (x - \mu_c)^\top \Sigma^+ (x - \mu_c) = \min_c \|T^\top (x - \mu_c)\|_2^2

    with the ground-truth labels y of the fit split, means of the classes it holds, and
    T = V diag(λ)^(-1/2) ``[D, r]`` from Σ = V diag(λ) V^T over the r directions whose variance λ
    exceeds what rounding the features to float32 can make, eps32² E‖x‖², and eigh's error,
    D eps64 λ_max. The others are collinear or dead features and pass no judgement.
    Classes without fit images are skipped and reported; a class with one image has that image
    as its mean. Without labels, of features without logits or of a multi-label head, all images are
    one class. Where each class has one image, Σ is that of all. Of fewer than 10 images for each
    feature, Σ is shrunk (:func:`~ood_lab.detectors.support.subspace.shrunk`).

    Own: pytorch-ood inverts the scatter (not divided by N) in float32 after adding 1e-6 to its
    diagonal: on collinear features distances turn negative, and a feature that is dead on the
    fit split decides the score when it fires. Ranking is the same where Σ is well conditioned.

    Args:
        fit_split: images, with labels if the network gives logits, that μ and Σ are estimated on.
    """

    reads = ("features", "labels")
    multilabel = True
    formula = "min_c (x − μ_c)ᵀΣ⁺(x − μ_c), Σ within classes"
    suspicious = "the features are far from every class mean, in units of the covariance"
    moments = ("means", "within")
    needs_rows = False

    def reads_rows(self, n: int, d: int) -> bool:
        """Of few images, for the shrinkage of Σ."""
        return self.needs_rows or is_few(n, d)

    def fit(self, bank: FeatureBank) -> Self:
        """Learns ``center [D]``, ``whiten [D, r]``, ``means [K, r]`` (whitened), ``classes``."""
        if not one_class(bank):
            require_labels(self, bank)
        moments = self.statistics(bank)
        if one_class(bank):
            means, classes = moments.mean()[None], torch.tensor([0])
        else:
            classes = moments.labelled.nonzero().flatten()
            means = moments.class_means[classes]
            absent = absent_classes(bank, classes)
            warn_classes(self, absent, f"have no {self.fit_split} image and are skipped")
            warn_classes(
                self,
                (moments.labelled == 1).nonzero().flatten().tolist(),
                "have one image, which is their mean",
            )
        whiten, rho = bank.derived.once(
            "whitening within the classes", lambda: self._within(bank, moments)
        )
        # Distances do not change with the origin; near the data, fewer digits cancel.
        center = means.mean(dim=0)
        self.fitted = {
            "center": center,
            "whiten": whiten,
            "means": (means - center) @ whiten,
            "classes": classes,
        }
        self.used = {"classes": len(classes), "rank": whiten.shape[1]}
        if rho:
            self.used["shrinkage"] = rho
            n, d, unit = group_count(bank), bank.width, unit_of(bank)
            self.chosen = f"covariance shrunk by {rho:.1%}, for {n:,} {unit}s of {d:,} features"
        return self

    def _within(self, bank: FeatureBank, moments: Moments) -> tuple[Tensor, float]:
        """T of Σ and its ρ."""
        if not bool((moments.labelled > 1).any()):
            return self._about(bank, moments, moments.mean())
        covariance, rho = shrunk(moments.within, bank, moments.class_means, bank.labels)
        return self._whitening(covariance, moments.mean_square), rho

    def _about(self, bank: FeatureBank, moments: Moments, mean: Tensor) -> tuple[Tensor, float]:
        """The same of all images, of those with a label where there are any."""
        labelled = bool(moments.labelled.any())
        groups = bank.labels.clamp(max=0) if labelled else torch.zeros_like(bank.labels)
        covariance = moments.about(mean, labelled)
        square = float(covariance.trace() + mean.square().sum())
        covariance, rho = shrunk(covariance, bank, mean[None], groups)
        return self._whitening(covariance, square), rho

    def _whitening(self, covariance: Tensor, square: float) -> Tensor:
        whiten = whitening(require_finite(self, covariance), square)
        if whiten.shape[1] == 0:
            raise DetectorRefusal(
                f"{type(self).__name__}: every {self.fit_split} image equals its class mean: it "
                "needs several different images per class"
            )
        return whiten

    def score(self, bank: FeatureBank) -> Tensor:
        """Smallest squared distance, ``[N]``, from 0; about D for ID images."""
        center, whiten, means = self.fitted_tensors("center", "whiten", "means")

        def distance(x: Tensor) -> Tensor:
            return squared_distances((self._rows(x) - center) @ whiten, means).amin(dim=1)

        return map_rows(distance, bank.features, width=len(means))

    def _rows(self, x: Tensor) -> Tensor:
        """The features as distances are taken of them, ``[n, D]``."""
        return x
