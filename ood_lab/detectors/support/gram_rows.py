"""Row sums of Gram matrices of feature maps, computed inside the extraction pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ood_lab.detectors.support.layer_statistics import LayerColumn

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


class GramColumn(LayerColumn):
    """Gram vectors of all layers side by side, C_l·P numbers of layer l.

    Args:
        layers: see :class:`LayerColumn`.
        powers: orders p of the Gram matrices.
    """

    owner = "gram"

    def __init__(self, layers: str | Sequence[str], powers: Sequence[int]) -> None:
        super().__init__(layers)
        self.powers = sorted(powers)
        self.key = f"gram(layers={self.chosen},powers={'_'.join(map(str, self.powers))})"

    def of_map(self, map_: Tensor) -> Tensor:
        """Gram vectors of one layer's maps."""
        return gram_vectors(map_, self.powers)

    def width_of(self, channels: int) -> int:
        """As many numbers as there are powers, for every channel."""
        return channels * len(self.powers)
