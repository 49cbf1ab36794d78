"""MDS-Ensemble: Mahalanobis distances in the pooled maps of several layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor

from ood_lab.detectors.base import FitSplit
from ood_lab.detectors.layer_column import LayerColumn, split_layers
from ood_lab.detectors.mds import MDS
from ood_lab.detectors.network import NetworkDetector
from ood_lab.detectors.requirements import require_labels
from ood_lab.features.bank import FeatureBank


class PooledColumn(LayerColumn):
    """Mean of every channel over all positions, C_l numbers of layer l."""

    owner = "mds_ensemble"
    title = "MDSEnsemble"

    def __init__(self, layers: str | Sequence[str]) -> None:
        super().__init__(layers)
        self.key = f"pooled(layers={self.chosen})"

    def of_map(self, map_: Tensor) -> Tensor:
        """The spatial mean of one layer's maps."""
        return map_.float().mean(dim=2)

    def width_of(self, channels: int) -> int:
        """One number a channel."""
        return channels


class MDSEnsemble(NetworkDetector):
    r"""Mean over layers of the squared Mahalanobis distance to the closest class mean.

    .. math::
        s(x) = \frac1L \sum_l \min_c (a_l - \mu_{lc})^\top \Sigma_l^+ (a_l - \mu_{lc})

    with a_l ``[C_l]`` the spatial mean of the maps of layer l, and μ, Σ those of :class:`MDS`,
    which works on each layer (arXiv 1807.03888, without its step on the input). The layers have
    equal weights: the paper learns them from OOD images.

    OpenOOD's setting reads the first convolution alone (``layers=[conv1]``), which is what its
    leaderboard shows.

    Args:
        layers: ``stages`` = last sub-module of every spatial resolution; ``conv`` = every
            Conv2d; or a list of sub-module names.
        fit_split: images, with labels, that the moments are estimated on.
    """

    name = "mds_ensemble"

    def __init__(
        self, layers: str | Sequence[str] = "stages", fit_split: FitSplit = "train"
    ) -> None:
        self._pooled = PooledColumn(layers)
        super().__init__(self._pooled, fit_split)

    def check(self, bank: FeatureBank) -> None:
        """Raises :class:`DetectorRefusal` without the column, or without class labels."""
        super().check(bank)
        require_labels(self, bank)

    def fit_memory(self, n: int, d: int, c: int) -> int:
        """That of MDS on one layer as wide as all of them; 0 before the backbone is known."""
        return MDS().fit_memory(n, self._pooled.width, c) if self._pooled.width else 0

    def fit(self, bank: FeatureBank) -> Self:
        """Learns what MDS learns, ``<l>.<key>`` of layer l."""
        self.check(bank)
        self.fitted = {
            f"{layer}.{key}": value
            for layer, of_layer in enumerate(self._by_layer(bank))
            for key, value in self._mds().fit(of_layer).fitted.items()
        }
        return self

    def score(self, bank: FeatureBank) -> Tensor:
        """Mean distance, ``[N]``, from 0."""
        distances = []
        for layer, of_layer in enumerate(self._by_layer(bank)):
            mds, prefix = self._mds(), f"{layer}."
            mds.fitted = {
                key.removeprefix(prefix): value
                for key, value in self.fitted.items()
                if key.startswith(prefix)
            }
            distances.append(mds.score(of_layer))
        return torch.stack(distances).mean(dim=0)

    def _mds(self) -> MDS:
        mds = MDS(self.fit_split or "train")
        mds.name = self.name
        return mds

    def _by_layer(self, bank: FeatureBank) -> Iterator[FeatureBank]:
        """Banks whose features are the pooled maps of one layer."""
        super().check(bank)  # scored images need no labels
        pooled, widths = split_layers(bank.columns[self._pooled.key])
        for features in pooled.split(widths.tolist(), dim=1):
            yield replace(bank, features=features, columns={})

    def describe(self) -> dict[str, Any]:
        """The layers as found, and the fit split."""
        return {
            "layers": self._pooled.names or self._pooled.choice,
            "fit_split": self.fit_split,
        }
