"""DICE: energy of the logits from the most contributing weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Self

import numpy as np
from torch import Tensor

from ood_lab.detectors.base import FittedDetector, with_settings
from ood_lab.detectors.support.feature_shaping import head_energy
from ood_lab.detectors.support.requirements import Percentile
from ood_lab.features.bank import FeatureBank
from ood_lab.features.image_groups import group_count, unit_of


@with_settings
class DICE(FittedDetector):
    r"""Energy with a sparsified last layer (arXiv 2111.09805).

    .. math::
        V_{cd} = \bar x_d W_{cd}, \quad
        M = [V > \mathrm{percentile}_p(V)], \quad
        s(x) = -\log \sum_c \exp\big((W \odot M) x + b\big)_c

    with the mean x̄ ``[D]`` over the fit split, strict inequality and the linear percentile of
    all C·D contributions. ``authors``: p = 90 up to 100 classes (CIFAR), 70 above (ImageNet).
    ``auto``: 90; 10 where there are fewer fit images than features. The logits of a head that has
    learned so few images are sums of many small contributions: without 30% of them or more, blurred
    photographs rank as ID (docs/results/few-photographs.md).

    Own: pytorch-ood's mask is the same, but it scores through a B×C×D array (1.6 GB for 200
    images, 1,000 classes, 2,048 features) in float32. The energy is pytorch-ood's.

    Args:
        percentile: p in [0, 100], the share of contributions dropped, ``authors`` or ``auto``.
        fit_split: images that x̄ is the mean of.
    """

    moments = ("means",)
    needs_rows = False
    reads = ("features", "head")
    formula = "−E with the least contributing weights dropped"
    suspicious = "the energy of the weights that contribute most is small"

    percentile: Percentile | Literal["authors", "auto"] = 90

    def fit(self, bank: FeatureBank) -> Self:
        """Learns ``weight [C, D]`` (masked)."""
        weight = bank.head_weight.double()
        contribution = self.statistics(bank).mean() * weight
        n, d = group_count(bank), weight.shape[1]
        rules = {"authors": 90 if len(weight) <= 100 else 70, "auto": 10 if n < d else 90}
        p = float(rules.get(str(self.percentile), self.percentile))
        if self.percentile == "auto" and n < d:
            self.chosen = f"percentile = 10, for {n:,} {unit_of(bank)}s of {d:,} features"
        threshold = float(np.percentile(contribution.numpy(), p))
        self.fitted = {"weight": weight * (contribution > threshold)}
        self.used = {"percentile": p, "threshold": threshold}
        return self

    def score(self, bank: FeatureBank) -> Tensor:
        """Energy of the sparsified logits, ``[N]``."""
        return head_energy(replace(bank, head_weight=self.fitted["weight"]), lambda x: x)
