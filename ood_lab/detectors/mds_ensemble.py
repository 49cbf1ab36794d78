"""MDS-Ensemble: Mahalanobis distances in the pooled maps of several layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from ood_lab.common.arguments import NotNegative
from ood_lab.common.tensor_file import Tensors
from ood_lab.detectors.base import FitSplit, with_settings
from ood_lab.detectors.mds import MDS
from ood_lab.detectors.support.chunked_arithmetic import squared_distances
from ood_lab.detectors.support.layer_probe import LayerColumn, channels_first, split_layers
from ood_lab.detectors.support.network_scores import NetworkDetector, input_step, require_std, sign
from ood_lab.detectors.support.requirements import require_labels
from ood_lab.features.bank import FeatureBank
from ood_lab.features.extraction_hooks import BankColumn
from ood_lab.features.moments import digest_of
from ood_lab.models.backbone import Backbone
from ood_lab.models.head_kind import Part
from ood_lab.models.output import Output


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
    layer_setting = "layers"
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
        if self.noise:
            self.reads = (*self.reads, "gradients")

    @cached_property
    def extraction_hook(self) -> PooledColumn:
        """The means of the maps."""
        return PooledColumn(self.layers)

    @property
    def second_pass_hook(self) -> BankColumn | None:
        """The distances after the step; None without a step."""
        if not self.noise:
            return None
        return MahalanobisStepColumn(self.extraction_hook, self.noise, self.std, self.fitted)

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


class LayerMoments:
    """The statistics that MDS has learned about one layer, on the device of the network.

    Args:
        fitted: ``center [C_l]``, ``whiten [C_l, r]``, ``means [K, r]`` of
            :class:`~ood_lab.detectors.mds.MDS`.
    """

    def __init__(self, fitted: Mapping[str, Tensor]) -> None:
        self._fitted = {key: fitted[key] for key in ("center", "whiten", "means")}

    @torch.no_grad()
    def distance(self, pooled: Tensor) -> Tensor:
        """d, the squared distance to the closest mean, ``[B] float64``, of ``pooled [B, C_l]``."""
        white, _, means = self._whitened(pooled)
        return squared_distances(white, means).amin(dim=1)

    @torch.no_grad()
    def direction(self, pooled: Tensor) -> Tensor:
        """∂d/∂pooled over its largest entry, ``[B, C_l] float64``.

        The factor does not change the sign of what follows from it and keeps half precision from
        overflow.
        """
        white, whiten, means = self._whitened(pooled)
        closest = means[squared_distances(white, means).argmin(dim=1)]
        gradient = (white - closest) @ whiten.T
        return gradient / gradient.abs().amax(dim=1, keepdim=True).clamp(min=1e-300)

    def _whitened(self, pooled: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        # They travel to a GPU once.
        self._fitted = {key: value.to(pooled.device) for key, value in self._fitted.items()}
        center, whiten, means = self._fitted.values()
        return (pooled.double() - center) @ whiten, whiten, means


class MahalanobisStepColumn(BankColumn):
    """d_l(Ĩ_l) of the layers l, ``[B, L]``, see :class:`~ood_lab.detectors.MDSEnsemble`.

    The forward pass that a column with a graph gets serves all layers; each of them adds a backward
    pass, which gives the step, and a forward pass, which gives the distance after it.

    Args:
        of: the column that was fitted on; it knows the layers.
        noise: ε, the step in units of the un-normalised image.
        std: the σ by which images were divided; None = the backbone's own.
        fitted: ``<l>.center``, ``<l>.whiten``, ``<l>.means`` of every layer; empty before the fit.
    """

    needs_input_grad = True

    def __init__(
        self,
        of: LayerColumn,
        noise: float,
        std: Sequence[float] | None,
        fitted: Mapping[str, Tensor],
    ) -> None:
        self._of, self.noise, self.std = of, noise, std
        layers = sorted({int(name.split(".")[0]) for name in fitted})
        self._moments = [LayerMoments(of_layer(fitted, layer)) for layer in layers]
        sigma = "own" if std is None else "_".join(map(str, std))
        self.key = (
            f"{of.owner}_step(learned={digest_of(fitted)[:16]},noise={noise},std={sigma},"
            f"layers={of.chosen})"
        )

    def layers(self, backbone: Backbone) -> list[str]:
        """The layers that the moments belong to."""
        require_std(self._of.owner, backbone, self.std)
        return self._of.layers(backbone)

    def compute(self, backbone: Backbone, image: Tensor, output: Output, maps: Tensors) -> Tensor:
        """Distances after the step; ``layers`` must have been called before."""
        names = self._of.names
        step = input_step(self.noise, require_std(self._of.owner, backbone, self.std), image)
        distances = []
        for place, (name, moments) in enumerate(zip(names, self._moments, strict=True), 1):
            positions = channels_first(backbone, maps[name])
            towards = moments.direction(self._of.of_map(positions.detach()))
            spread = towards.to(positions.dtype).unsqueeze(2).expand_as(positions)
            more = place < len(names)
            (gradient,) = torch.autograd.grad(positions, image, spread, retain_graph=more)
            with torch.no_grad(), backbone.capture([name]) as moved:
                backbone(image - step * sign(gradient))
            after = self._of.of_map(channels_first(backbone, moved[name]))
            distances.append(moments.distance(after))
        return torch.stack(distances, dim=1).float()


def of_layer(fitted: Mapping[str, Tensor], layer: int) -> Tensors:
    """The entries ``<layer>.<key>``, by ``<key>``."""
    prefix = f"{layer}."
    return {k.removeprefix(prefix): v for k, v in fitted.items() if k.startswith(prefix)}
