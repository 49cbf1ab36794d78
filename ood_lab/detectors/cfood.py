"""CFOOD: smallest neighbourhood, as a share of the fit images, that takes the image in."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY
from typing import Self

import numpy as np
import torch
from torch import Tensor

from ood_lab.common.arguments import Count, PositiveShare
from ood_lab.detectors.base import DetectorRefusal, with_settings
from ood_lab.detectors.support.chunked_arithmetic import (
    map_rows,
    row_chunks,
    squared_distances,
)
from ood_lab.detectors.support.compute_device import on_device
from ood_lab.detectors.support.neighbour_search import CappedBankDetector, unit
from ood_lab.features.bank import FeatureBank

#: Shares κ that neighbourhoods are tried at: fine where they are small.
SHARES = np.concatenate(
    [np.linspace(0.001, 0.1, 100), np.linspace(0.105, 0.5, 81), np.linspace(0.51, 0.99, 49)]
)


#: References, at least, as far as there are images.
FEWEST = 1000


@with_settings
class CFOOD(CappedBankDetector):
    r"""Smallest share of neighbours at which enough references accept the image (SISAP 2025).

    .. math::
        s(x) = \min\Big\{\kappa : \#\big\{i : \|\hat x - \hat x_i\|_2^2 \le r_i(\kappa)\big\}
        \ge k n \Big\}, \qquad \hat x = x / \|x\|_2

    over 230 shares κ, with n random references i of the fit split and r_i(κ) the squared distance
    of reference i to its ⌊κn⌋-th (at least first) neighbour among them; 1 where no κ does. Labels
    are not used. There are 231 values at most, so that most images tie and FPRs jump.

    OpenOOD's pull request 302, which this follows, compares with the references one image at a
    time; here each distance is looked up in the r of its reference.

    Args:
        alpha: share of the fit images that become references; of 1,000 images or fewer, all do.
        k: share of the references that have to accept, in (0, 1].
        max_bank: so many references at most, since fitting takes all distances between them.
        seed: of their choice.
        fit_split: images they are taken from.
    """

    formula = (
        "smallest share κ at which k·n references have x̂ within their ⌊κn⌋-th neighbour; many ties"
    )
    suspicious = "many training images have nearer neighbours than this one"

    alpha: PositiveShare = 0.1
    k: PositiveShare = 0.01
    _: KW_ONLY
    max_bank: Count = 20_000

    def _kept(self, n: int) -> int:
        return min(max(int(self.alpha * n), min(n, FEWEST)), self.max_bank)

    def check_size(self, n: int, c: int) -> None:
        """Raises :class:`DetectorRefusal` where fewer than two references remain."""
        if self._kept(n) < 2:
            raise DetectorRefusal(
                f"CFOOD: {n:,} {self.fit_split} images leave {self._kept(n)} references: set "
                f"detector.{self.name}.alpha higher"
            )

    def row_bytes(self, d: int, c: int) -> int:
        """A reference ``[D]`` and its radii ``[230] float64``."""
        return 8 * (2 * d + len(SHARES))

    def fit(self, bank: FeatureBank) -> Self:
        """Learns ``bank [n, D]`` (unit length), ``shares [K]`` and ``radii [n, K]``, ascending."""
        self.check_size(len(bank), bank.num_classes)
        n = self._kept(len(bank))
        references = unit(bank.features[self.kept_rows(len(bank))].double())
        there = on_device(references)
        neighbours, first = np.unique(
            np.maximum((SHARES * n - 1).astype(int), 0) + 1, return_index=True
        )
        radii = torch.empty(n, len(neighbours), dtype=torch.float64)
        for rows in row_chunks(n, n):
            distances = squared_distances(there[rows], there)
            # In ascending order the image itself comes first.
            radii[rows] = distances.sort(dim=1).values.cpu()[:, torch.from_numpy(neighbours)]
        self.fitted = {
            "bank": references,
            "radii": radii,
            "shares": torch.from_numpy(SHARES[first]),
        }
        self.used = {"bank": n}
        return self

    def score(self, bank: FeatureBank) -> Tensor:
        """Smallest share, ``[N]`` in [0.001, 1]."""
        references, radii, shares = self.fitted_tensors("bank", "radii", "shares")
        shares = torch.cat([shares, shares.new_ones(1)])
        needed = math.ceil(self.k * len(references) - 1e-9)

        def smallest(x: Tensor) -> Tensor:
            distances = squared_distances(references, unit(x))
            place = torch.searchsorted(radii, distances)  # the first r_i(κ) that reaches so far
            return shares[place.kthvalue(needed, dim=0).values]

        return map_rows(smallest, bank.features, width=4 * len(references))
