"""AdaSCALE: scaling of features or logits by how stable the features are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Self

import torch
from pytorch_ood.detector import EnergyBased
from torch import Tensor

from ood_lab.common.arguments import NotNegative, Positive, PositiveShare
from ood_lab.common.errors import UserError
from ood_lab.common.tensor_file import Tensors
from ood_lab.detectors.base import FitSplit, with_settings
from ood_lab.detectors.support.chunked_arithmetic import map_rows
from ood_lab.detectors.support.feature_shaping import head_energy, scale_ratio_each
from ood_lab.detectors.support.network_scores import NetworkDetector
from ood_lab.detectors.support.requirements import (
    Percentile,
)
from ood_lab.features.bank import FeatureBank
from ood_lab.features.extraction_hooks import GradientColumn
from ood_lab.models.backbone import Backbone
from ood_lab.models.output import Output

#: Step of a perturbed input element, in units of the normalised image.
STEP = 0.5


class AdaSCALEColumn(GradientColumn):
    """C_o and Q of the definition in :class:`AdaSCALE`, ``[B, 2]``.

    Args:
        k1: percentage of the features in C_o.
        k2: percentage of the features in Q; 0 leaves Q out.
        o: share of the input elements that are perturbed.
    """

    def __init__(self, k1: float, k2: float, o: float) -> None:
        self.k1, self.k2, self.o = k1, k2, o
        self.key = f"adascale(k1={k1:g},k2={k2:g},o={o:g})"

    def of_gradient(
        self,
        backbone: Backbone,
        image: Tensor,
        output: Output,
        maps: Tensors,
        gradient: Sequence[Tensor],
    ) -> Tensor:
        """One forward pass of the perturbed image."""
        flat = gradient[0].flatten(1)
        weakest = flat.abs().topk(int(flat.shape[1] * self.o), dim=1, largest=False).indices
        step = torch.zeros_like(flat).scatter(1, weakest, STEP * flat.gather(1, weakest).sign())
        moved = backbone(image + step.view_as(image)).features.float()
        features = output.features.float()
        corrected = _of_largest(features, moved.relu(), self.k1)
        shift = _of_largest(features, (features - moved).abs(), self.k2)
        return torch.stack([corrected, shift], dim=1)


def _of_largest(features: Tensor, values: Tensor, percent: float) -> Tensor:
    """Sum of ``values`` where ``features`` are largest; at least one of them, none for 0%."""
    if percent == 0:
        return torch.zeros_like(values[:, 0])
    # A small share of few features would otherwise be none, silently.
    k = max(1, int(features.shape[1] * percent / 100))
    return values.gather(1, features.topk(k, dim=1).indices).sum(dim=1)


@with_settings
class AdaSCALE(NetworkDetector):
    r"""Adaptive scaling (arXiv 2503.08023), what both variants share.

    .. math::
        P(x) = p_{\min} + \big(1 - F(C_o + \lambda Q)\big)(p_{\max} - p_{\min}), \qquad
        C_o = \sum_{\mathrm{top}\ k_1\%} \max(x'_d, 0), \quad
        Q = \sum_{\mathrm{top}\ k_2\%} |x_d - x'_d|

    with the features x' of an image whose ``o`` least important elements (smallest gradient of
    the predicted logit) have moved by half a unit of the normalised image, sums over the largest
    features of x, and F the empirical distribution over the fit split. r is then as in SCALE, at
    the image's own percentile P, of max(x, 0).

    Computed inside the extraction pass, whose forward supplies x: one backward and one forward
    pass per image, once for both variants. k1 and k2 are OpenOOD's names; the paper swaps them.
    Both sums have at least one feature (OpenOOD drops Q below 100 features, which turns the
    adaptation round); ``k2=0`` leaves Q out.

    Args:
        percentiles: p_min and p_max, both between 0 and 100.
        k1: percentage of the features in C_o.
        k2: percentage of the features in Q.
        weight: λ.
        o: share of the input elements that are perturbed, in (0, 1].
        fit_split: images that F is estimated on.
    """

    percentiles: Sequence[Percentile] = (75, 85)
    k1: Positive = 5
    k2: NotNegative = 1
    weight: float = 10
    o: PositiveShare = 0.05
    fit_split: FitSplit = "val"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.percentiles) != 2 or self.percentiles[0] > self.percentiles[1]:
            shown = list(self.percentiles)
            raise UserError(f"detector.{self.name}.percentiles={shown}: give two, the lower first")

    @cached_property
    def extraction_hook(self) -> AdaSCALEColumn:
        """Q and C_o."""
        return AdaSCALEColumn(self.k1, self.k2, self.o)

    def fit(self, bank: FeatureBank) -> Self:
        """Learns ``stability [N]``, C_o + λQ of the fit images, ascending."""
        self.fitted = {"stability": self._stability(bank).sort().values}
        return self

    def _stability(self, bank: FeatureBank) -> Tensor:
        values = self.values(bank).double()
        return values[:, 0] + self.weight * values[:, 1]

    def _kept(self, bank: FeatureBank) -> Tensor:
        """K = D − round(D P / 100) of every image, at least 1, ``[N] float64``."""
        ranked = self.fitted["stability"]
        share = torch.searchsorted(ranked, self._stability(bank), right=True) / len(ranked)
        low, high = self.percentiles
        d = bank.width
        percent = low + (1 - share.double()) * (high - low)
        return (d - (d * percent / 100).round()).clamp(min=1)

    @abstractmethod
    def _energy(self, bank: FeatureBank, kept: Tensor) -> Tensor:
        """Score of every image, ``[N]``, with k = ``kept``."""

    def score(self, bank: FeatureBank) -> Tensor:
        """Energy of scaled features or logits, ``[N]``."""
        return self._energy(bank, self._kept(bank))


class AdaSCALEA(AdaSCALE):
    r"""AdaSCALE-A, of the features: :math:`s(x) = -\log \sum_c \exp(e^r W x + b)_c`.

    See :class:`AdaSCALE` for r and the arguments.
    """

    name = "adascale_a"
    reads = ("features", "logits", "head", "gradients")
    formula = "as `scale`, at a percentile that falls as the features prove stable"
    suspicious = "the energy of features scaled by their stability is small"

    def _energy(self, bank: FeatureBank, kept: Tensor) -> Tensor:
        def scaled(x: Tensor, k: Tensor) -> Tensor:
            return x * scale_ratio_each(x.relu(), k.long()).exp()

        return head_energy(bank, scaled, kept)


class AdaSCALEL(AdaSCALE):
    r"""AdaSCALE-L, of the logits: :math:`s(x) = -\log \sum_c \exp(r^2 z_c)`.

    See :class:`AdaSCALE` for r and the arguments.
    """

    name = "adascale_l"
    reads = ("features", "logits", "level", "gradients")
    formula = "as `lts`, at a percentile that falls as the features prove stable"
    suspicious = "the energy of logits scaled by the stability of features is small"

    def _energy(self, bank: FeatureBank, kept: Tensor) -> Tensor:
        def energy(x: Tensor, z: Tensor, k: Tensor) -> Tensor:
            return EnergyBased.score(scale_ratio_each(x.relu(), k.long()).square() * z)

        return map_rows(energy, bank.features, bank.logits, kept)
