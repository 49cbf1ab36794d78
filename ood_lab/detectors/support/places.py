"""Places of an image: the positions of the feature maps of two middle layers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from ood_lab.common.random_streams import stream
from ood_lab.common.tensor_file import Tensors
from ood_lab.detectors.base import DetectorRefusal
from ood_lab.detectors.support.layer_probe import check_names, grid, probe, stage_names
from ood_lab.features.extraction_hooks import BankColumn
from ood_lab.models.backbone import Backbone
from ood_lab.models.output import Output

#: Strides of the layers that are chosen where the network has both, as in PatchCore.
STRIDES = (8, 16)
#: Largest magnitude that is stored, within float16.
LARGEST = 6e4


class PlacesColumn(BankColumn):
    """All places of an image, ``[B, h, w, D]``: float16, whose bits are stored as int16.

    Each map is averaged over 3 x 3, the coarser ones are resampled to the finest (bilinear), and
    all are put side by side (arXiv 2106.08265, section 3.1). More channels than ``dims`` are
    projected onto ``dims`` random directions, which keeps distances (Johnson-Lindenstrauss).

    Args:
        layers: ``auto`` = the last maps of stride 8 and 16, else the two coarsest; of a
            transformer the blocks at a third and two thirds of its depth. Or sub-module names.
        dims: largest D.
        seed: of the projection.
    """

    needed_for_fit = True
    traceable = True

    def __init__(self, layers: str | Sequence[str], dims: int, seed: int) -> None:
        self._choice = layers if isinstance(layers, str) else list(layers)
        self._dims, self._seed = dims, seed
        chosen = layers if isinstance(layers, str) else "+".join(layers)
        self.key = f"places(layers={chosen},dims={dims},seed={seed})"
        self.names: list[str] = []

    def layers(self, backbone: Backbone) -> list[str]:
        """The sub-modules, also kept as ``names``.

        Raises:
            DetectorRefusal: the network has no maps of several positions, or none of these names.
        """
        maps = probe(backbone).maps
        names = self._choice if isinstance(self._choice, list) else _middle(backbone, maps)
        if not names:
            raise DetectorRefusal(
                f"patch_knn: {backbone.name} has no feature maps with positions; name sub-modules "
                f"that have them with detector.patch_knn.layers=[...]; it has "
                f"{', '.join(list(maps)[:8]) or 'none'}"
            )
        check_names("patch_knn", backbone, names, list(maps))
        self.names = names
        return names

    @torch.no_grad()
    def compute(self, backbone: Backbone, image: Tensor, output: Output, maps: Tensors) -> Tensor:
        """The bits of :meth:`places`; in a graph, which has no bits, the numbers themselves."""
        places = self.places(backbone, image, maps).clamp(-LARGEST, LARGEST).half()
        return places if torch.jit.is_tracing() else places.view(torch.int16)

    def places(self, backbone: Backbone, image: Tensor, maps: Tensors) -> Tensor:
        """``[B, h, w, D] float32`` of the maps of ``names``."""
        grids = [_positions(backbone, image, maps[name]).float() for name in self.names]
        # Sizes are no tensors while a graph is traced.
        size = max((tuple(map(int, one.shape[2:])) for one in grids), key=math.prod)
        smooth = [F.avg_pool2d(one, 3, stride=1, padding=1) for one in grids]
        parts = [
            one
            if tuple(one.shape[2:]) == size
            else F.interpolate(one, size=size, mode="bilinear", align_corners=False)
            for one in smooth
        ]
        places = torch.cat(parts, dim=1).permute(0, 2, 3, 1)
        channels = int(places.shape[-1])
        if channels <= self._dims:
            return places
        normal = stream(self._seed, "projection of places").standard_normal((channels, self._dims))
        directions = torch.from_numpy(normal / math.sqrt(self._dims)).to(places)
        return places @ directions


def floats(column: Tensor) -> Tensor:
    """The places of a column, ``float32``."""
    return (column.view(torch.float16) if column.dtype == torch.int16 else column).float()


def _middle(backbone: Backbone, maps: Tensors) -> list[str]:
    """The layers of ``auto``."""
    names = stage_names(backbone, maps)
    tokens = [name for name, map_ in maps.items() if map_.ndim == 3]
    if tokens and all(name in tokens for name in names):  # a transformer
        blocks: dict[str, list[str]] = {}
        for name in tokens:
            blocks.setdefault(name.rpartition(".")[0], []).append(name)
        longest = max(blocks.values(), key=len, default=[])
        return [longest[i * len(longest) // 3] for i in (1, 2)] if len(longest) > 2 else names[-2:]
    names = names or list({map_.shape[2:]: n for n, map_ in maps.items()}.values())
    side = backbone.data_config["input_size"][1]
    strides = {round(side / int(grid(backbone, maps[n]).shape[2])): n for n in names}
    return [strides[s] for s in STRIDES] if strides.keys() >= set(STRIDES) else names[-2:]


def _positions(backbone: Backbone, image: Tensor, map_: Tensor) -> Tensor:
    """``[B, C, h, w]`` of a map, or of tokens ``[B, N, C]`` without those of no position."""
    if map_.ndim == 4:
        return grid(backbone, map_)
    tokens, ratio = int(map_.shape[1]), int(image.shape[2]) / int(image.shape[3])
    h, w = math.isqrt(round(tokens * ratio)), math.isqrt(round(tokens / ratio))
    while h * w > tokens:
        w -= 1
    return map_[:, tokens - h * w :].mT.unflatten(2, (h, w))
