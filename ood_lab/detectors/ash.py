"""ASH: energy of the logits from pruned and reshaped features."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ood_lab.detectors.base import Detector, with_settings
from ood_lab.detectors.support.feature_shaping import head_energy, kept_count
from ood_lab.detectors.support.requirements import Percentile, require_non_negative
from ood_lab.features.bank import FeatureBank


def _binarise(x: Tensor, kept: Tensor) -> Tensor:
    return (x.sum(dim=1, keepdim=True) / kept.shape[1]).expand_as(kept)


def _scale(x: Tensor, kept: Tensor) -> Tensor:
    total, part = x.sum(dim=1, keepdim=True), kept.sum(dim=1, keepdim=True)
    # Features that are all 0 stay 0, whatever the factor.
    return kept * torch.exp(total / torch.where(part == 0, 1, part))


def _prune(x: Tensor, kept: Tensor) -> Tensor:
    return kept


RESHAPE = {"b": _binarise, "s": _scale, "p": _prune}


@with_settings
class ASH(Detector):
    r"""Energy of shaped activations (arXiv 2209.09858).

    .. math:: s(x) = -\log \sum_c \exp(W x' + b)_c

    where x' keeps the k = D - round(D p / 100) largest entries of x ``[D]`` (at least one) and
    is 0 elsewhere. The kept entries become Σx / k (variant ``b``), x · exp(Σx / Σkept)
    (``s``), or stay (``p``). x is the pooled feature, as in the authors' and OpenOOD's code;
    pytorch-ood shapes the maps before pooling. Nothing is fitted.

    Own: pytorch-ood's variant s is NaN for a feature vector of zeros, and its k reaches 0 in
    small layers. Its variants agree otherwise; the energy is pytorch-ood's.

    Args:
        variant: b, s or p.
        percentile: p in [0, 100), the share of entries pruned.
        force: accept features below 0. The method presumes ReLU features.
    """

    reads = ("features", "head")
    formula = "−E of the largest entries, reshaped"
    suspicious = "the energy of the largest features is small"

    variant: Literal["b", "s", "p"] = "b"
    percentile: Percentile = 90
    force: bool = False

    def score(self, bank: FeatureBank) -> Tensor:
        """Energy of the logits of shaped features, ``[N]``."""
        require_non_negative(self, bank, self.force)
        k = kept_count(bank.width, self.percentile)

        def shaped(x: Tensor) -> Tensor:
            kept, places = x.topk(k, dim=1)
            return torch.zeros_like(x).scatter_(1, places, RESHAPE[self.variant](x, kept))

        return head_energy(bank, shaped)
