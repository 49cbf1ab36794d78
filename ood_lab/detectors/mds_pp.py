"""MDS++: Mahalanobis distance of unit-length features."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

from torch import Tensor

from ood_lab.detectors.mds import MDS
from ood_lab.detectors.support.neighbour_search import unit
from ood_lab.features.bank import FeatureBank


class MDSPP(MDS):
    r"""Mahalanobis++ (arXiv 2505.18032): :class:`MDS` of features scaled to length 1.

    .. math::
        \hat x = x / \max(\|x\|_2, 10^{-12}), \qquad
        s(x) = \min_c (\hat x - \mu_c)^\top \Sigma^+ (\hat x - \mu_c)

    with μ_c and Σ of the x̂ of the fit split, Σ shrunk of few images as there. The length of a
    feature differs between images far more than MDS's Gaussians allow; x̂ does not have it.

    Args:
        fit_split: images, with labels if the network gives logits, that μ and Σ are estimated on.
    """

    reads = ("features", "labels")
    multilabel = False
    formula = "`mds` of x̂ = x/‖x‖"
    suspicious = "the direction of the features is far from that of every class mean"
    needs_rows = True  # the sums that others learn from are of x

    def fit_memory(self, n: int, d: int, c: int) -> int:
        """All x̂ ``[N, D] float32``."""
        return 4 * n * d

    def fit(self, bank: FeatureBank) -> Self:
        """Learns what MDS does, of x̂."""
        return super().fit(replace(bank, features=unit(bank.features)))

    def _rows(self, x: Tensor) -> Tensor:
        return unit(x)
