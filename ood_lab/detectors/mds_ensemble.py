"""MDS-Ensemble: Mahalanobis distances in the pooled maps of several layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor

from ood_lab.detectors.base import FitSplit, with_settings
from ood_lab.detectors.mds import MDS
from ood_lab.detectors.support.layer_statistics import LayerColumn, split_layers
from ood_lab.detectors.support.mahalanobis_step import MahalanobisStepColumn, of_layer
from ood_lab.detectors.support.network_scores import NetworkDetector
from ood_lab.detectors.support.requirements import NotNegative, require_labels
from ood_lab.features.bank import FeatureBank
from ood_lab.features.extraction_hooks import BankColumn
from ood_lab.models.head_kind import Part


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


#: With other settings it reads more.
READS: tuple[Part, ...] = ("maps", "labels")


@with_settings
class MDSEnsemble(NetworkDetector):
    r"""Mean over layers of the squared Mahalanobis distance to the closest class mean.

    .. math::
        d_l(I) = \min_c (a_l - \mu_{lc})^\top \Sigma_l^+ (a_l - \mu_{lc}), \quad
        \tilde I_l = I - \tfrac{\epsilon}{\sigma}\,\mathrm{sign}\,\nabla_I d_l(I), \qquad
        s(I) = \frac1L \sum_l d_l(\tilde I_l)

    with a_l ``[C_l]`` the spatial mean of the maps of layer l, μ, Σ those of :class:`MDS`, which
    works on each layer, sign(0) = +1 and σ the standard deviation of the backbone's own
    normalisation (arXiv 1807.03888). The layers have equal weights: the paper learns them, and ε,
    from OOD images, which is not done here.

    With ``noise`` above 0 the step needs μ and Σ, so that the images to be scored go through the
    network a second time after the fit: one forward pass, and for each layer a backward and a
    forward pass. At 0 there is no step and no second pass: s is the mean of d_l(I).

    OpenOOD's setting reads only the stem, after its activation (``layers=[act1]`` in timm's
    ResNets), with ε = 0.0014 and σ = 0.5, which is what its leaderboard shows.

    Args:
        layers: ``stages`` = last sub-module of every spatial resolution; ``conv`` = every
            Conv2d; or a list of sub-module names.
        noise: ε, the step in units of the un-normalised image in [0, 1]; the paper tries 0, 0.0005,
            0.001, 0.0014, 0.002, 0.005 and 0.01.
        std: overrides σ, one value per channel.
        fit_split: images, with labels, that the moments are estimated on.
    """

    name = "mds_ensemble"
    reads = READS
    formula = "mean over layers of `mds` on the spatial mean of their maps"
    source = "1807.03888"
    suspicious = "the Mahalanobis distances of several layers are large"

    layers: str | Sequence[str] = "stages"
    noise: NotNegative = 0.0
    std: Sequence[float] | None = None
    fit_split: FitSplit = "train"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._pooled = self._column = PooledColumn(self.layers)
        if self.noise:
            self.reads = (*self.reads, "gradients")

    @property
    def second_pass_hook(self) -> BankColumn | None:
        """The distances after the step; None without a step."""
        if not self.noise:
            return None
        return MahalanobisStepColumn(self._pooled, self.noise, self.std, self.fitted)

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
        if self.noise:
            return self.second_values(bank).double().mean(dim=1)
        distances = []
        for layer, of_bank in enumerate(self._by_layer(bank)):
            mds = self._mds()
            mds.fitted = of_layer(self.fitted, layer)
            distances.append(mds.score(of_bank))
        return torch.stack(distances).mean(dim=0)

    def _mds(self) -> MDS:
        mds = MDS(self.fit_split or "train")
        mds.name = self.name
        return mds

    def _by_layer(self, bank: FeatureBank) -> Iterator[FeatureBank]:
        """Banks whose features are the pooled maps of one layer."""
        pooled, widths = split_layers(self.values(bank))
        for features in pooled.split(widths.tolist(), dim=1):
            yield replace(bank, features=features, columns={})

    def describe(self) -> dict[str, Any]:
        """With the layers of the network."""
        return super().describe() | {"layers": self._pooled.names or self.layers}
