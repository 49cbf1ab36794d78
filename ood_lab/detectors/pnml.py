"""PNML: regret of the predictive normalised maximum likelihood."""

from __future__ import annotations

import math
from typing import Self

import torch
from torch import Tensor

from ood_lab.common.tensor_arithmetic import squared_norms
from ood_lab.detectors.base import FittedDetector, with_settings
from ood_lab.detectors.support.chunked_arithmetic import map_rows
from ood_lab.detectors.support.compute_device import head_on_device
from ood_lab.detectors.support.requirements import require_finite, require_two_classes
from ood_lab.detectors.support.subspace import spanned
from ood_lab.features.bank import FeatureBank

#: Probabilities are kept this far from 0 and 1.
MARGIN = 1e-12


@with_settings
class PNML(FittedDetector):
    r"""Regret of the single-layer pNML learner (arXiv 2110.09246).

    .. math::
        h = (1, \hat x), \quad q = h^\top (H^\top H)^+ h, \quad
        \kappa = \max\Big(\|h - P h\|_2^2, \frac{q}{1 + q}\Big), \quad
        s(x) = \frac{1}{\log C} \log \sum_c \frac{p_c}{p_c + (1 - p_c) p_c^\kappa}

    with x̂ = x/‖x‖, H ``[N, D + 1]`` the rows h of the fit split, P the projection onto their span
    and p = softmax(W x̂ + b) in [1e-12, 1 − 1e-12]: the head on the unit feature, as in the
    authors' code. Labels are not used.

    Own: pytorch-ood omits the constant of h and the part of h outside the span.

    Args:
        fit_split: images that H is made of.
    """

    moments = ("gram",)
    needs_rows = False
    reads = ("features", "head")
    formula = "log Σ_c p_c/(p_c + (1 − p_c)p_c^κ) / log C on x̂"
    suspicious = "as a training image it could have had any label"

    def fit(self, bank: FeatureBank) -> Self:
        """Learns ``values [r]`` and ``vectors [D + 1, r]``, the span of H^T H."""
        require_two_classes(self, bank)
        gram = self.statistics(bank).gram
        values, vectors = spanned(require_finite(self, gram), 2.0)  # ‖h‖² = 2
        self.fitted = {"values": values * len(bank), "vectors": vectors}
        self.used = {"rank": len(values)}
        return self

    def score(self, bank: FeatureBank) -> Tensor:
        """Regret, ``[N]`` in [0, 1]."""
        values, vectors = self.fitted_tensors("values", "vectors")
        weight, bias = head_on_device(bank)

        def regret(x: Tensor) -> Tensor:
            h = _with_constant(x)
            inside = h @ vectors
            q = (inside.square() / values).sum(dim=1)
            outside = (squared_norms(h) - squared_norms(inside)).clamp(min=0)
            kappa = torch.maximum(outside, q / (1 + q))[:, None]
            p = (h[:, 1:] @ weight.T + bias).softmax(dim=1).clamp(MARGIN, 1 - MARGIN)
            return (p / (p + (1 - p) * p**kappa)).sum(dim=1).log()

        return map_rows(regret, bank.features, width=len(weight)) / math.log(len(weight))


def _with_constant(x: Tensor) -> Tensor:
    unit = torch.nn.functional.normalize(x, dim=1, eps=1e-12)
    return torch.cat([torch.ones_like(unit[:, :1]), unit], dim=1)
