"""NAC-UE: how often fit images had the neuron states of an image, at the last layer."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ood_lab.detectors.base import Detector, FitSplit
from ood_lab.detectors.device import head_on_device, on_device
from ood_lab.detectors.neighbours import choose_rows
from ood_lab.detectors.numeric import CHUNK_BYTES, blocks, map_rows
from ood_lab.detectors.requirements import check_count, check_positive, require_labels
from ood_lab.errors import UserError
from ood_lab.features.bank import FeatureBank


def bin_edges(m: int) -> Tensor:
    """M ascending edges from 0 that leave M − 1 bins, narrow near 0 and 1: ``[m] float64``.

    The lower half is log_1000 of M/2 equal steps from 1 to √1000, the upper one its mirror image;
    the last bin also takes states of exactly 1.
    """
    low = np.log(np.linspace(1, math.sqrt(1000), m // 2)) / math.log(1000)
    edges = np.concatenate([low[:-1], (1 - low)[::-1], [1.2]])
    edges[-2] += 0.01
    return torch.from_numpy(edges)


class NAC(Detector):
    r"""Uncertainty by neuron activation coverage (NAC-UE, arXiv 2306.02879), last layer.

    .. math::
        a = \sigma\big(\alpha \, x \odot W^\top (p - \tfrac1C)\big), \qquad
        s(x) = -\frac1D \sum_d \min\Big(\frac{n_d[\mathrm{bin}(a_d)]}{O}, 1\Big)

    where Wᵀ(p − 1/C) is the gradient at the features of KL(uniform ‖ p), p = softmax(z), and n_d
    counts the fit images whose state of feature d lies in the same bin. Fitted on as many images
    of each class (``fit_images`` / C, or all of the smallest class).

    The authors' settings: 50 bins with O 50, α 100 (CIFAR) or O 10, α 3000 (ImageNet, ResNet-50).
    Own: pytorch-ood sums layers and starts its bins at 1e-6, where two thirds of the images tie.

    Args:
        bins: M, an even number; edges of the histogram.
        full: O, images that fill a bin.
        steepness: α of the sigmoid.
        fit_images: about so many fit images are counted; None = all, labels not needed.
        seed: of their choice.
        fit_split: images they are taken from.
    """

    name = "nac"
    reads = "head"

    def __init__(
        self,
        bins: int = 50,
        full: float = 50,
        steepness: float = 100,
        fit_images: int | None = 1000,
        seed: int = 0,
        fit_split: FitSplit = "train",
    ) -> None:
        super().__init__(fit_split)
        if check_count("nac.bins", bins) % 2 or bins < 4:
            raise UserError(f"detector.nac.bins={bins}: must be an even number from 4")
        self.bins, self.seed = bins, seed
        self.full = check_positive("nac.full", full)
        self.steepness = check_positive("nac.steepness", steepness)
        self.fit_images = (
            fit_images if fit_images is None else check_count("nac.fit_images", fit_images)
        )

    def check(self, bank: FeatureBank) -> None:
        """Raises :class:`DetectorRefusal` without labels where ``fit_images`` needs them."""
        if self.fit_images is not None:
            require_labels(self, bank)

    def fit_memory(self, n: int, d: int, c: int) -> int:
        """Counts ``[D, M] float64``, weights ``[C, D]``."""
        return 8 * (2 * d * self.bins + c * d) + 8 * CHUNK_BYTES

    def fit(self, bank: FeatureBank) -> Self:
        """Learns ``coverage [D, M - 1]`` in [0, 1]."""
        self.check(bank)
        chosen, weight = self._balanced(bank.labels), head_on_device(bank)[0]
        d, wide = bank.features.shape[1], self.bins - 1
        offset = on_device(torch.arange(d) * wide)
        counts = torch.zeros(d * wide, dtype=torch.float64)
        for rows, x in blocks(bank.features, chosen):
            z = on_device(bank.logits[chosen[rows]]).double()
            places = self._bins(x.double(), z, weight)
            counts += (places + offset).flatten().bincount(minlength=d * wide).cpu()
        self.fitted = {"coverage": (counts / self.full).clamp(max=1).view(d, wide)}
        return self

    def _balanced(self, labels: Tensor) -> Tensor:
        """Rows counted: the same number of every class, or all."""
        if self.fit_images is None:
            return torch.arange(len(labels))
        labelled = (labels >= 0).nonzero().flatten()
        counts = labels[labelled].unique(return_counts=True)[1]
        each = max(1, min(self.fit_images // len(counts), int(counts.min())))
        return labelled[choose_rows(labels[labelled], self.seed, None, each)]

    def _bins(self, x: Tensor, z: Tensor, weight: Tensor) -> Tensor:
        """Bin of the state of every feature: ``[b, D] int64``."""
        gradient = (z.softmax(dim=1) - 1 / z.shape[1]) @ weight
        state = torch.sigmoid(self.steepness * x * gradient)
        return torch.bucketize(state, on_device(bin_edges(self.bins)), right=True) - 1

    def score(self, bank: FeatureBank) -> Tensor:
        """Negative coverage, ``[N]`` in [-1, 0]."""
        (coverage,), (weight, _) = self.learned("coverage"), head_on_device(bank)
        features = on_device(torch.arange(len(coverage)))

        def negative(x: Tensor, z: Tensor) -> Tensor:
            return -coverage[features, self._bins(x, z, weight)].mean(dim=1)

        return map_rows(negative, bank.features, bank.logits)

    def describe(self) -> dict[str, Any]:
        """All settings."""
        names = ("bins", "full", "steepness", "fit_images", "seed", "fit_split")
        return {name: getattr(self, name) for name in names} | {"layers": "last"}
