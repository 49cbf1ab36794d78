"""NNGuide: energy guided by the nearest fit images."""

from __future__ import annotations

import logging
from dataclasses import KW_ONLY
from typing import Literal, Self

import torch
from torch import Tensor

from ood_lab.common.arguments import Count
from ood_lab.detectors.base import with_settings
from ood_lab.detectors.support.neighbour_search import (
    NeighbourDetector,
    chosen_rows,
    inverse_norm,
    map_queries,
    unit,
)
from ood_lab.features.bank import FeatureBank
from ood_lab.neighbours import Rows, largest_products

log = logging.getLogger(__name__)

#: Logits that are reduced at a time.
ROWS = 4096


@with_settings
class NNGuide(NeighbourDetector):
    r"""Nearest-neighbour guidance (arXiv 2309.14888).

    .. math::
        s(x) = -E(x) \cdot \frac1k \sum_{j \in \mathrm{top}\ k} E(x_j) \, \hat x^\top \hat x_j,
        \quad E = \log \sum_c e^{z_c}, \quad \hat x = x / \|x\|_2

    with the k fit images that have the largest products E(x_j) x̂ᵀx̂_j. Labels are not used. The
    method presumes E > 0 (a product with a negative one turns its order round; a warning says on
    how many fit images) and features of at least 0.

    OpenOOD keeps the first 1% of an unshuffled list, which is grouped by class; here the bank is
    a random choice. pytorch-ood holds all similarities at once; its formula is the same.

    Args:
        k: neighbours averaged; ``auto`` as in :class:`~ood_lab.detectors.KNN`, up to 100.
        max_bank: keep that many random fit images at most; None = all.
        seed: of the random choice.
        fit_split: images in the bank.
    """

    reads = ("features", "logits", "level")
    formula = "−log Σ exp z · mean of the k largest x̂ᵀx̂_j log Σ exp z_j"
    neighbours = True
    largest_k = 100
    suspicious = "energy and similarity to training images are small"

    k: Count | Literal["auto"] = "auto"
    _: KW_ONLY
    max_bank: Count | None = 20_000

    def row_bytes(self, d: int, c: int) -> int:
        """``[D] float32`` with a number."""
        return 4 * (d + 1)

    def fit(self, bank: FeatureBank) -> Self:
        """Learns ``bank [M, D]`` and ``scale [M]``, E(x_j)/‖x_j‖."""
        self.check_size(len(bank), bank.num_classes)
        rows = self.kept_rows(len(bank))
        features = chosen_rows(bank.features, rows)
        parts = chosen_rows(bank.logits, rows).split(ROWS)
        energy = torch.cat([logits.logsumexp(dim=1) for logits in parts])
        negative = int((energy <= 0).sum())
        if negative:
            log.warning(
                "NNGuide: log-sum-exp of the logits is not above 0 on %d of %d fit images, where "
                "guidance works the wrong way",
                negative,
                len(energy),
            )
        k = self.chosen_k(bank, rows)
        scale = energy * inverse_norm(features)
        self.fitted = {"bank": features, "scale": scale, "k": torch.tensor(k)}
        self.used = {"k": k, "bank": len(features)}
        return self

    def score(self, bank: FeatureBank) -> Tensor:
        """Negative guided energy, ``[N]``."""
        return map_queries(self._guided, bank.features, bank.logits)

    def _guided(self, x: Tensor, z: Tensor) -> Tensor:
        rows, scale = self.fitted["bank"], self.fitted["scale"]
        best = largest_products(unit(x), Rows(rows, scale), int(self.fitted["k"]))
        return -z.double().logsumexp(dim=1) * best.double().mean(dim=1)
