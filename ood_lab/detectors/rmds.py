"""RMDS: Mahalanobis distance to the closest class, less that to all images."""

from __future__ import annotations

from typing import Self

from torch import Tensor

from ood_lab.common.tensor_arithmetic import squared_norms
from ood_lab.detectors.base import DetectorRefusal
from ood_lab.detectors.mds import MDS
from ood_lab.detectors.support.chunked_arithmetic import map_rows
from ood_lab.detectors.support.requirements import absent_classes, require_labels
from ood_lab.features.bank import FeatureBank


class RMDS(MDS):
    r"""Relative Mahalanobis distance (arXiv 2106.09022).

    .. math::
        s(x) = \min_c (x - \mu_c)^\top \Sigma^+ (x - \mu_c) - (x - \mu)^\top \Sigma_0^+ (x - \mu)

    with class means and within-class covariance as :class:`MDS` estimates them, and the mean μ
    and covariance Σ₀ of all images of the fit split, both divided by N and, of few images, shrunk.
    Directions that no image varies in pass no judgement in either term.

    Own: pytorch-ood's formula is the same; it adds 1e-6 to both diagonals and inverts them. A
    class without fit images is rejected here: OpenOOD's mean of it is NaN.

    Args:
        fit_split: images, with labels, that the moments are estimated on.
    """

    reads = ("features", "labels")
    multilabel = False
    formula = "`mds` − (x − μ)ᵀΣ₀⁺(x − μ), Σ₀ of all images"
    suspicious = "a class mean is hardly nearer than the mean of all images"

    def fit(self, bank: FeatureBank) -> Self:
        """Learns what MDS does, and ``mean [D]`` and ``whiten_all [D, r]`` of all images."""
        require_labels(self, bank)
        absent = absent_classes(bank, bank.labels.unique())
        if absent:
            raise DetectorRefusal(
                f"RMDS: {len(absent):,} of {bank.classes:,} classes (first: "
                f"{absent[0]}) have no {self.fit_split} image"
            )
        super().fit(bank)
        moments = self.statistics(bank)
        self.fitted["mean"] = mean = moments.mean(labelled=True)
        self.fitted["whiten_all"], _ = self._about(bank, moments, mean)
        return self

    def score(self, bank: FeatureBank) -> Tensor:
        """Difference of squared distances, ``[N]``."""
        mean, whiten = self.fitted_tensors("mean", "whiten_all")
        marginal = map_rows(lambda x: squared_norms((x - mean) @ whiten), bank.features)
        return super().score(bank) - marginal
