"""ReAct: energy of the logits from clipped features."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from ood_lab.detectors.base import Detector, FitSplit, with_settings
from ood_lab.detectors.support.chunked_arithmetic import percentile
from ood_lab.detectors.support.feature_shaping import head_energy
from ood_lab.detectors.support.requirements import Percentile, require_non_negative
from ood_lab.features.bank import FeatureBank


@with_settings
class ReAct(Detector):
    r"""Energy of rectified activations (arXiv 2111.12797).

    .. math::
        t = \mathrm{percentile}_p\{x'_d\}, \qquad
        s(x) = -\log \sum_c \exp\big(W \min(x, t) + b\big)_c

    over all N·D entries of the fit split (linear interpolation). Clipping is after pooling, as
    in the authors' and OpenOOD's code; the examples of pytorch-ood clip feature maps, which is
    another detector. The authors and OpenOOD estimate t on ID validation images.

    Scores are pytorch-ood's ``ReAct`` applied to pooled features, which is right.

    Args:
        percentile: p in [0, 100].
        fit_split: images that t is estimated on.
        force: accept features below 0. The method presumes ReLU features.
    """

    reads = ("features", "head")
    formula = "−E(min(x, t))"
    suspicious = "the energy is small after clipping of large features"

    percentile: Percentile = 90
    fit_split: FitSplit = "val"
    force: bool = False

    def fit_memory(self, n: int, d: int, c: int) -> int:
        """A copy of all features ``[N, D] float32``."""
        return 4 * n * d

    def fit(self, bank: FeatureBank) -> Self:
        """Learns ``threshold``."""
        require_non_negative(self, bank, self.force)
        threshold = percentile(bank.features, self.percentile)
        self.fitted = {"threshold": torch.tensor(threshold, dtype=torch.float64)}
        self.used = {"threshold": threshold}
        return self

    def score(self, bank: FeatureBank) -> Tensor:
        """Energy of the logits of clipped features, ``[N]``."""
        threshold = self.fitted["threshold"].item()
        return head_energy(bank, lambda x: x.clip(max=threshold))
