"""Row sums of Gram matrices of feature maps, computed inside the extraction pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ood_lab.detectors.base import DetectorRefusal
from ood_lab.detectors.probe import channels_first, check_names, probe, stage_names
from ood_lab.features.column import Column
from ood_lab.models.backbone import Backbone
from ood_lab.models.output import Output

#: Floats worked on at a time on a CPU, so that all powers are computed within its cache.
CACHE_FLOATS = 2**17


def gram_vectors(map_: Tensor, powers: Sequence[int]) -> Tensor:
    """Signed p-th roots of the row sums of the Gram matrices of order p.

    For F ``[C, P]`` and t = F^p elementwise, the row sums of t tᵀ are t (Σ_c t_c), so the C×C
    matrix is never formed. F is divided by its largest entry m before and the result multiplied
    by m² after, so that F^(2p) neither overflows nor depends on the scale of the activations.

    Args:
        map_: feature maps ``[B, C, P]``.
        powers: ascending orders p ≥ 1.

    Returns:
        ``[B, len(powers) · C] float32``, by power, then by channel.
    """
    rows = max(1, CACHE_FLOATS // map_[0].numel()) if map_.device.type == "cpu" else len(map_)
    return torch.cat([_gram_vectors(part.float(), powers) for part in map_.split(rows)])


def _gram_vectors(map_: Tensor, powers: Sequence[int]) -> Tensor:
    tiny = torch.finfo(map_.dtype).tiny
    largest = map_.abs().amax(dim=(1, 2), keepdim=True).clamp_min(tiny)
    unit = map_ / largest
    power, vectors = torch.ones_like(unit), []
    for p in range(1, powers[-1] + 1):
        power *= unit
        if p in powers:
            sums = (power * power.sum(dim=1, keepdim=True)).sum(dim=2)
            vectors.append(sums.sign() * sums.abs() ** (1 / p))
    return torch.cat(vectors, dim=1) * largest[:, 0] ** 2


class GramColumn(Column):
    """Gram vectors of all layers side by side, ``[B, Σ_l C_l·P + L + 1]``.

    The last L + 1 numbers of every row are the widths C_l·P of the L layers and L itself, so
    that a bank read from disk can be split into layers again.

    Args:
        layers: ``stages`` (last sub-module of every spatial resolution), ``conv`` (every
            Conv2d) or a list of sub-module names.
        powers: orders p of the Gram matrices.
    """

    needed_for_fit = True

    def __init__(self, layers: str | Sequence[str], powers: Sequence[int]) -> None:
        self.choice: str | list[str] = layers if isinstance(layers, str) else list(layers)
        self.powers = sorted(powers)
        chosen = self.choice if isinstance(self.choice, str) else "+".join(self.choice)
        self.key = f"gram(layers={chosen},powers={'_'.join(map(str, self.powers))})"
        self.names: list[str] = []
        self.width = 0

    def layers(self, backbone: Backbone) -> list[str]:
        """Resolves the layer list on this backbone.

        Also kept as ``names``; ``width`` is then the number of floats per image adds to the bank.
        """
        maps = probe(backbone).maps
        names = self._choose(backbone, maps)
        check_names("Gram", backbone, names, list(maps))
        channels = sum(channels_first(backbone, maps[name]).shape[1] for name in names)
        self.names, self.width = names, channels * len(self.powers) + len(names) + 1
        return names

    def _choose(self, backbone: Backbone, maps: dict[str, Tensor]) -> list[str]:
        if isinstance(self.choice, list):
            return self.choice
        if self.choice == "conv":
            modules = dict(backbone.named_modules())
            names = [name for name in maps if isinstance(modules[name], nn.Conv2d)]
        elif self.choice == "stages":
            names = stage_names(backbone, maps)
        else:
            raise DetectorRefusal(
                f"Gram: layers must be 'stages', 'conv' or a list of names, not '{self.choice}'"
            )
        if not names:
            raise DetectorRefusal(
                f"Gram: found no layers by '{self.choice}' in this backbone; name them with "
                f"detector.gram.layers=[...]; some that yield maps: {', '.join(list(maps)[:8])}"
            )
        return names

    @torch.no_grad()
    def compute(
        self, backbone: Backbone, image: Tensor, output: Output, maps: dict[str, Tensor]
    ) -> Tensor:
        """Gram vectors of the maps of ``names``; ``layers`` must have been called before."""
        vectors = [
            gram_vectors(channels_first(backbone, maps[name]), self.powers) for name in self.names
        ]
        widths = [vector.shape[1] for vector in vectors]
        tail = torch.tensor([*widths, len(widths)], dtype=torch.float32, device=image.device)
        return torch.cat([*vectors, tail.expand(len(image), -1)], dim=1)


def split_layers(column: Tensor) -> tuple[Tensor, Tensor]:
    """Undoes the packing of :class:`GramColumn`: all Gram vectors and the width of each layer."""
    n = int(column[0, -1])
    return column[:, : -1 - n], column[0, -1 - n : -1].long()
