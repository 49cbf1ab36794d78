"""GROOD: distance between gradients at a prototype of OOD images."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from ood_lab.common.tensor_arithmetic import squared_norms
from ood_lab.detectors.base import DetectorRefusal, with_settings
from ood_lab.detectors.support.chunked_arithmetic import blocks, squared_distances
from ood_lab.detectors.support.neighbour_search import (
    CappedBankDetector,
    map_queries,
)
from ood_lab.detectors.support.requirements import absent_classes, require_labels, warn_classes
from ood_lab.features.bank import FeatureBank
from ood_lab.neighbours import Rows, largest_products

#: Distance from the prototype below which the gradient has no direction and counts as zero.
SMALLEST = 1e-12


@with_settings
class GROOD(CappedBankDetector):
    r"""Gradient-aware detection (arXiv 2312.14427).

    .. math::
        g(x) = \pi_n(x) \frac{x - P_n}{\|x - P_n\|_2}, \qquad
        s(x) = \min_j \|g(x) - g(x_j)\|_2^2

    g is the gradient, at the OOD prototype P_n, of the cross-entropy of a nearest-prototype
    classifier: π_n is the share of −‖x − P_n‖ in the softmax over it and −‖x − μ_c‖ of all
    classes. μ are class means of the fit split, j its correctly predicted images. P_n is the mean
    of the class means, so that no OOD image is looked at. Classes without fit images have no
    prototype, which is reported.

    OpenOOD's class crashes at the end of its setup, and its search is approximate.

    Args:
        max_bank: keep that many random fit images at most; None = all.
        seed: of the random choice.
        fit_split: images, with labels, that prototypes and gradients come from.
    """

    reads = ("features", "logits", "labels", "own_classes")
    moments = ("means",)
    formula = "min_j ‖g(x) − g(x_j)‖², g the gradient at the OOD prototype"
    suspicious = "its gradient at an OOD prototype is unlike those of training images"

    def row_bytes(self, d: int, c: int) -> int:
        """A gradient ``[D] float32`` with a number."""
        return 4 * (d + 1)

    def fit(self, bank: FeatureBank) -> Self:
        """Learns ``means [K, D]``, ``prototype [D]``, ``gradients [M, D]``, ``half_square [M]``."""
        require_labels(self, bank)
        right = (bank.predictions == bank.labels).nonzero().flatten()
        if not len(right):
            raise DetectorRefusal(f"GROOD: no {self.fit_split} image is classified correctly")
        moments = self.statistics(bank)
        classes = moments.labelled.nonzero().flatten()
        absent = absent_classes(bank, classes)
        warn_classes(self, absent, f"have no {self.fit_split} image and no prototype")
        means = moments.class_means[classes]
        self.fitted = {"means": means, "prototype": means.mean(dim=0)}
        kept = right[self.kept_rows(len(right))]
        gradients = torch.empty(len(kept), bank.width)
        half_square = torch.empty(len(kept), dtype=torch.float64)
        for rows, x in blocks(bank.features, kept):
            gradients[rows] = self._gradient(x.double()).float().cpu()
            half_square[rows] = squared_norms(gradients[rows].double()) / 2
        self.fitted |= {"gradients": gradients, "half_square": half_square}
        self.used = {"bank": len(kept)}
        return self

    def _gradient(self, x: Tensor) -> Tensor:
        prototype, means = self.fitted_tensors("prototype", "means")
        away = x - prototype
        length = away.norm(dim=1, keepdim=True)
        distances = squared_distances(x, means).sqrt()
        share = torch.cat([-length, -distances], dim=1).softmax(dim=1)[:, :1]
        return share * away / length.clamp(min=SMALLEST)

    def score(self, bank: FeatureBank) -> Tensor:
        """Smallest squared distance between gradients, ``[N]`` in [0, 4]."""
        return map_queries(self._distance, bank.features)

    def _distance(self, x: Tensor) -> Tensor:
        gradient = self._gradient(x.double())
        gradients, half = self.fitted["gradients"], self.fitted["half_square"]
        best = largest_products(gradient, Rows(gradients, offset=-half), 1)[:, 0]
        return (squared_norms(gradient) - 2 * best).clamp(min=0)
