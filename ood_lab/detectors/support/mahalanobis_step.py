"""Distances to the class means of layers after a step of the image towards them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ood_lab.common.tensor_file import Tensors
from ood_lab.detectors.support.chunked_arithmetic import squared_distances
from ood_lab.detectors.support.input_step import input_step, require_std, sign
from ood_lab.detectors.support.layer_probe import channels_first
from ood_lab.detectors.support.layer_statistics import LayerColumn
from ood_lab.features.extraction_hooks import BankColumn
from ood_lab.features.moments import digest_of
from ood_lab.models.backbone import Backbone
from ood_lab.models.output import Output


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
