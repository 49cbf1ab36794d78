"""VRA: energy of the logits from features that are cut off at both ends."""

from __future__ import annotations

from typing import Literal, Self

import torch
from torch import Tensor

from ood_lab.common.errors import UserError
from ood_lab.common.tensor_arithmetic import squared_norms
from ood_lab.detectors.base import FittedDetector, with_settings
from ood_lab.detectors.support.chunked_arithmetic import (
    column_percentiles,
    map_rows,
    percentile,
)
from ood_lab.detectors.support.feature_shaping import head_energy
from ood_lab.detectors.support.requirements import Percentile, require_non_negative
from ood_lab.features.bank import FeatureBank


@with_settings
class VRA(FittedDetector):
    r"""Variational rectified activations (arXiv 2302.11716).

    .. math::
        v_d = \begin{cases} 0 & x_d < \alpha_d \\ x_d + \gamma & \alpha_d \le x_d \le \beta_d \\
        \beta_d & x_d > \beta_d \end{cases}, \qquad
        s(x) = -\log \sum_c \exp(W v + b)_c + a \sum_d (x_d - m)^2

    with α and β percentiles of the fit split. VRA has γ = a = 0, VRA+ (which amplifies) γ > 0,
    VRA++ γ = 0 and a > 0. In the paper α and β belong to each feature and are learned on training
    images. OpenOOD takes one percentile of all entries of the validation images and raises what
    is below α to α instead of setting it to 0 (``below=clip``).

    Own: pytorch-ood's class clips too, and takes the maps before pooling.

    Args:
        low: percentile (0 to 100) that α is.
        high: percentile that β is.
        per_feature: percentiles of every feature; else of all entries.
        below: zero or clip, what becomes of entries below α.
        gamma: γ, added between α and β.
        quadratic: a, of VRA++.
        center: m, of VRA++.
        fit_split: images that α and β are estimated on.
        force: accept features below 0. The method presumes ReLU features.
    """

    reads = ("features", "head")
    formula = "−E(v), v = 0 below α, x + γ between, β above"
    suspicious = "the energy is small after clipping of small and large features"

    low: Percentile = 60
    high: Percentile = 90
    per_feature: bool = True
    below: Literal["zero", "clip"] = "zero"
    gamma: float = 0
    quadratic: float = 0
    center: float = 0
    force: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low > self.high:
            raise UserError(
                f"detector.vra.low={self.low}: must not exceed detector.vra.high={self.high}"
            )

    def fit(self, bank: FeatureBank) -> Self:
        """Learns ``alpha [D]`` and ``beta [D]``."""
        require_non_negative(self, bank, self.force)
        if self.per_feature:
            alpha, beta = column_percentiles(bank.features, [self.low, self.high])
        else:
            alpha, beta = self._of_all(bank.features)
        self.fitted = {"alpha": alpha, "beta": beta}
        return self

    def _of_all(self, features: Tensor) -> Tensor:
        ends = [percentile(features, p) for p in (self.low, self.high)]
        return torch.tensor(ends, dtype=torch.float64)[:, None].repeat(1, features.shape[1])

    def score(self, bank: FeatureBank) -> Tensor:
        """Energy of the logits of cut features, ``[N]``."""
        require_non_negative(self, bank, self.force)
        energy = head_energy(bank, self._cut)
        if not self.quadratic:
            return energy
        far = map_rows(lambda x: squared_norms(x - self.center), bank.features)
        return energy + self.quadratic * far

    def _cut(self, x: Tensor) -> Tensor:
        alpha, beta = self.fitted_tensors("alpha", "beta")
        low = alpha if self.below == "clip" else torch.zeros_like(alpha)
        cut = torch.where(x < alpha, low, x + self.gamma)
        return torch.where(x > beta, beta, cut)
