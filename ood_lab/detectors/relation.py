"""Relation: similarity to the fit images in feature and prediction."""

from __future__ import annotations

from typing import Self

from torch import Tensor

from ood_lab.common.arguments import Positive
from ood_lab.detectors.base import with_settings
from ood_lab.detectors.support.neighbour_search import (
    CappedBankDetector,
    chosen_rows,
    map_queries,
    unit,
)
from ood_lab.features.bank import FeatureBank
from ood_lab.neighbours import Rows


@with_settings
class Relation(CappedBankDetector):
    r"""Neural relation graph (arXiv 2301.12321).

    .. math::
        k_j = \max(0, \hat x^\top \hat x_j) \cdot p^\top p_j, \qquad
        s(x) = -\sum_j [k_j > \theta] \, k_j^t, \quad p = \mathrm{softmax}(z)

    over all fit images j; labels are not used. The cost is that of an exact neighbour search over
    D + C numbers per image, in float64, so that no image changes sides of θ by rounding.

    Args:
        power: t > 0; the authors' t for OOD detection is 1.
        threshold: θ.
        max_bank: keep that many random fit images at most; None = all.
        seed: of the random choice.
        fit_split: images in the bank.
    """

    reads = ("features", "logits")
    formula = "−Σ_j [k_j > θ] k_j^t, k_j = max(0, x̂ᵀx̂_j) pᵀp_j"
    neighbours = True
    suspicious = "it is related to few training images"

    power: Positive = 1
    threshold: float = 0.03

    def row_bytes(self, d: int, c: int) -> int:
        """``[D + C] float32``."""
        return 4 * (d + c)

    def fit(self, bank: FeatureBank) -> Self:
        """Learns ``features [M, D]`` and ``logits [M, C]``: the bank itself, or chosen rows."""
        rows = self.kept_rows(len(bank))
        self.fitted = {
            "features": chosen_rows(bank.features, rows),
            "logits": chosen_rows(bank.logits, rows),
        }
        self.used = {"bank": len(rows)}
        return self

    def score(self, bank: FeatureBank) -> Tensor:
        """Negative sum of similarities, ``[N]``, up to 0."""
        return map_queries(self._similarity, bank.features, bank.logits)

    def _similarity(self, x: Tensor, z: Tensor) -> Tensor:
        x, p = unit(x.double()), z.double().softmax(dim=1)
        total = x.new_zeros(x.shape[0])
        features, logits = Rows(self.fitted["features"]), Rows(self.fitted["logits"])
        for near, alike in zip(features.blocks_for(x), logits.blocks_for(p), strict=True):
            kernel = (x @ unit(near.features).T).clamp_(min=0)
            kernel *= p @ alike.features.softmax(dim=1).T
            kernel *= kernel > self.threshold
            total -= kernel.pow_(self.power).sum(dim=1)
        return total
