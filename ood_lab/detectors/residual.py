"""Residual: length of the feature outside the principal subspace."""

from __future__ import annotations

from typing import Self

from torch import Tensor

from ood_lab.detectors.base import FittedDetector, with_settings
from ood_lab.detectors.support.subspace import Dimension, fit_residual, residual_norm
from ood_lab.features.bank import FeatureBank


@with_settings
class Residual(FittedDetector):
    r"""The residual of ViM on its own (arXiv 2203.10807).

    .. math:: s(x) = \|R^\top (x - u)\|_2, \qquad u = -W^+ b

    Without a linear head, or with ``auto`` of fewer fit images than features, u is the mean, and
    the principal subspace that of the covariance. R is, ``[D, D - dim]``, as in
    :class:`~ood_lab.detectors.ViM`, whose rule for ``dim`` holds here too. Labels are not used.
    OpenOOD estimates R on validation images, and a dim of D or
    more gives every image a score of 0 there.

    Args:
        dim: dimension of the principal subspace, ``auto`` or ``authors``.
        fit_split: images that R is estimated on.
    """

    moments = ("means", "within")
    formula = "‖Rᵀ(x − u)‖, u = −W⁺b"
    suspicious = "a large part of the features is outside the subspace of training images"

    dim: Dimension = "auto"

    def fit(self, bank: FeatureBank) -> Self:
        """Learns ``origin [D]``, ``residual [D, D - dim]`` and ``dim``."""
        self.fitted, _ = fit_residual(self, bank, self.dim)
        return self

    def score(self, bank: FeatureBank) -> Tensor:
        """Length of the residual, ``[N]``, from 0."""
        return residual_norm(self.fitted, bank.features)
