"""ViM: virtual logit from the residual outside the principal subspace."""

from __future__ import annotations

from typing import Self

from pytorch_ood.detector import EnergyBased
from torch import Tensor

from ood_lab.detectors.residual import Residual
from ood_lab.detectors.support.chunked_arithmetic import map_rows
from ood_lab.detectors.support.subspace import fit_residual
from ood_lab.features.bank import FeatureBank


class ViM(Residual):
    r"""Virtual-logit matching (arXiv 2203.10807).

    .. math::
        u = -W^+ b, \qquad
        s(x) = \alpha \|R^\top (x - u)\|_2 - \log \sum_c e^{z_c}, \qquad
        \alpha = \frac{\mathrm{mean} \max_c z_c}{\mathrm{mean} \|R^\top (x - u)\|_2}

    with R ``[D, D - dim]`` the eigenvectors of the fit split's E[(x - u)(x - u)^T] but the top
    ``dim``, and means over the fit split. Labels are not used. ``authors`` is their dim:
    1000 from D = 2048, else 512; ``auto`` is the same, and at most half of the rank of the fit
    images (:func:`~ood_lab.detectors.support.subspace.principal_dimension`). With
    ``auto``, u is the mean of fewer images than features. A dim of D or more
    leaves no residual: D // 2 is used then, and reported.

    Own: pytorch-ood and OpenOOD give NaN for dim = D (α = ∞), and both form the covariance of
    all rows at once in float32. Formula and the D // 2 rule are pytorch-ood's, as is the energy.

    Args:
        dim: dimension of the principal subspace, ``auto`` or ``authors``.
        fit_split: images that R and α are estimated on.
    """

    reads = ("features", "logits", "level", "head")
    formula = "α‖Rᵀ(x − u)‖ − log Σ exp z, u = −W⁺b"
    suspicious = "a large part of the features is outside the subspace of training images"

    def fit(self, bank: FeatureBank) -> Self:
        """Learns ``origin [D]``, ``residual [D, D - dim]``, ``alpha`` and ``dim``."""
        self.fitted, norm = fit_residual(self, bank, self.dim)
        self.fitted["alpha"] = alpha = self.statistics(bank).mean_largest / norm
        self.used = {**self.used, "alpha": alpha.item()}
        return self

    def score(self, bank: FeatureBank) -> Tensor:
        """Virtual logit minus log-sum-exp of the logits, ``[N]``."""
        return self.fitted["alpha"] * super().score(bank) + map_rows(EnergyBased.score, bank.logits)
