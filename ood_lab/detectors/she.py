"""SHE: agreement with the stored pattern of the predicted class."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Self

import torch
from torch import Tensor

from ood_lab.detectors.base import DetectorRefusal, FittedDetector, with_settings
from ood_lab.detectors.support.chunked_arithmetic import map_rows
from ood_lab.detectors.support.compute_device import on_device
from ood_lab.detectors.support.requirements import absent_classes, require_labels, warn_classes
from ood_lab.features.bank import FeatureBank
from ood_lab.features.image_groups import independent_share, unit_of


def _inner_product(x: Tensor, pattern: Tensor) -> Tensor:
    return (x * pattern).sum(dim=1)


def _cosine(x: Tensor, pattern: Tensor) -> Tensor:
    return torch.cosine_similarity(x, pattern, dim=1, eps=1e-12)


def _euclidean(x: Tensor, pattern: Tensor) -> Tensor:
    return -(x - pattern).norm(dim=1)


AGREEMENT = {"inner_product": _inner_product, "cosine": _cosine, "euclidean": _euclidean}
#: Correct images per class from which ``auto`` takes the authors' own.
MANY = 100


@with_settings
class SHE(FittedDetector):
    r"""Simplified Hopfield energy (ICLR 2023, openreview.net/forum?id=KkazG4lgKL).

    .. math::
        S_c = \mathrm{mean}\{x' : y' = \hat y' = c\}, \qquad s(x) = -x^\top S_{\hat y}

    with one pattern per class from the fit images whose prediction ŷ is right. ``cosine`` is the
    cosine in place of the inner product, ``euclidean`` the distance ‖x − S_ŷ‖. A class without a
    correct image has no pattern: ŷ is the most probable of those that have one. Where the head has
    other classes than the data, S_c is the mean of the images that are predicted as c.

    An inner product also grows with ‖x‖, which says little where the network has learned few images
    of these classes: with a fitted linear head it ranks blurred photographs as ID. ``auto`` is the
    cosine below :data:`MANY` correct images per class (median), else the inner product
    (docs/results/few-photographs.md).

    Own: pytorch-ood's formula is the same in float32, over all rows at once.

    Args:
        metric: inner_product (the paper's), cosine, euclidean or auto.
        fit_split: images, with labels, that the patterns are the means of.
    """

    moments = ("means",)
    needs_rows = False
    reads = ("features", "logits", "labels")
    formula = "−xᵀS_ŷ, S_c the mean of correct images"
    suspicious = "the features are unlike the mean pattern of their class"

    metric: Literal["inner_product", "cosine", "euclidean", "auto"] = "inner_product"

    def fit(self, bank: FeatureBank) -> Self:
        """Learns ``patterns [K, D]`` of ``classes [K]``, and ``metric``, its place in the list."""
        require_labels(self, bank)
        other = bank.label_classes is not None
        if other and bank.features.is_meta:
            raise DetectorRefusal(
                "SHE: of a head of other classes it reads the predictions of the "
                f"{self.fit_split} images: set task.keep_features=true"
            )
        seen = self.statistics(replace(bank, labels=bank.predictions) if other else bank)
        classes = seen.right.nonzero().flatten()
        if not len(classes):
            raise DetectorRefusal(f"SHE: no {self.fit_split} image is classified correctly")
        if not other:
            absent = absent_classes(bank, classes)
            warn_classes(self, absent, f"have no correct {self.fit_split} image and no pattern")
        per_class = int(seen.right[classes].median() * independent_share(bank))
        metric = self.metric
        if metric == "auto":
            metric = "cosine" if per_class < MANY else "inner_product"
            unit = unit_of(bank)
            self.chosen = f"metric = {metric}, for {per_class:,} correct {unit}s per class"
        self.fitted = {"patterns": seen.right_means[classes], "classes": classes}
        self.fitted |= {"metric": torch.tensor([*AGREEMENT].index(metric))}
        self.used = {"metric": metric}
        return self

    def score(self, bank: FeatureBank) -> Tensor:
        """Negative agreement, ``[N]``."""
        (patterns,), classes = self.fitted_tensors("patterns"), self.fitted["classes"]
        agreement = [*AGREEMENT.values()][int(self.fitted["metric"])]

        def negative(x: Tensor, z: Tensor) -> Tensor:
            predicted = z[:, on_device(classes)].argmax(dim=1)
            return -agreement(x, patterns[predicted])

        return map_rows(negative, bank.features, bank.logits)
