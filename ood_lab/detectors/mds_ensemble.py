"""MDS-Ensemble: Mahalanobis distances in the pooled maps of several layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from ood_lab.detectors.base import FitSplit, with_settings
from ood_lab.detectors.mds import MDS
from ood_lab.detectors.support.layer_probe import LayerColumn, Layers, split_layers
from ood_lab.detectors.support.network_scores import NetworkDetector
from ood_lab.detectors.support.requirements import require_labels
from ood_lab.features.bank import FeatureBank


class PooledColumn(LayerColumn):
    """Mean of every channel over all positions, C_l numbers of layer l."""

    owner = "mds_ensemble"

    def __init__(self, layers: Layers) -> None:
        super().__init__(layers)
        self.key = f"pooled(layers={self.chosen})"

    def of_map(self, map_: Tensor) -> Tensor:
        """The spatial mean of one layer's maps."""
        return map_.float().mean(dim=2)


@with_settings
class MDSEnsemble(NetworkDetector):
    r"""Mean over layers of the squared Mahalanobis distance to the closest class mean.

    .. math::
        s(I) = \frac1L \sum_l \min_c (a_l - \mu_{lc})^\top \Sigma_l^+ (a_l - \mu_{lc})

    with a_l ``[C_l]`` the spatial mean of the maps of layer l, and μ and Σ those of :class:`MDS`,
    which works on each layer (arXiv 1807.03888). The layers have equal weights, and the image
    does not move: the paper learns weights, and a step on the input, from OOD images.

    OpenOOD's setting reads only the stem, after its activation (``layers=[act1]`` in timm's
    ResNets), and moves the image by a step of 0.0014.

    Args:
        layers: ``stages`` = last sub-module of every spatial resolution; ``conv`` = every
            Conv2d; or a list of sub-module names.
        fit_split: images, with labels, that the moments are estimated on.
    """

    reads = ("maps", "labels")
    formula = "mean over layers of `mds` on the spatial mean of their maps"
    suspicious = "the Mahalanobis distances of several layers are large"

    layers: Layers = "stages"
    fit_split: FitSplit = "train"

    @cached_property
    def extraction_hook(self) -> PooledColumn:
        """The means of the maps."""
        return PooledColumn(self.layers)

    def fit(self, bank: FeatureBank) -> Self:
        """Learns what MDS learns, ``<l>.<key>`` of layer l."""
        require_labels(self, bank)
        self.fitted = {
            f"{layer}.{key}": value
            for layer, of_bank in enumerate(self._by_layer(bank))
            for key, value in self._mds().fit(of_bank).fitted.items()
        }
        return self

    def score(self, bank: FeatureBank) -> Tensor:
        """Mean distance, ``[N]``, from 0."""
        distances = []
        for layer, of_bank in enumerate(self._by_layer(bank)):
            mds = self._mds()
            mds.fitted = {
                key: self.fitted[f"{layer}.{key}"] for key in ("center", "whiten", "means")
            }
            distances.append(mds.score(of_bank))
        return torch.stack(distances).mean(dim=0)

    def _mds(self) -> MDS:
        mds = MDS(fit_split=self.fit_split)
        mds.name = self.name
        return mds

    def _by_layer(self, bank: FeatureBank) -> Iterator[FeatureBank]:
        """Banks whose features are the pooled maps of one layer."""
        pooled, widths = split_layers(self.values(bank))
        for features in pooled.split(widths.tolist(), dim=1):
            yield replace(bank, features=features, columns={})
