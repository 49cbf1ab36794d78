"""PatchKNN: the distance of the most unusual place of an image to the places of fit images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Literal, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from ood_lab.common.arguments import Count
from ood_lab.common.random_streams import stream
from ood_lab.common.tensor_arithmetic import squared_norms
from ood_lab.common.tensor_file import Tensors
from ood_lab.detectors.base import FitSplit, with_settings
from ood_lab.detectors.support.compute_device import compute_device, on_device
from ood_lab.detectors.support.layer_probe import ChosenLayers, grid, stage_names
from ood_lab.detectors.support.network_scores import NetworkDetector
from ood_lab.detectors.support.requirements import require_finite
from ood_lab.features.bank import FeatureBank
from ood_lab.features.image_groups import group_codes
from ood_lab.models.backbone import Backbone
from ood_lab.models.output import Output
from ood_lab.neighbours.matrix_precision import full_float32

#: Strides of the layers that are chosen where the network has both, as in PatchCore.
STRIDES = (8, 16)
#: Largest magnitude that is stored, within float16.
LARGEST = 6e4


class PlacesColumn(ChosenLayers):
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

    owner = "patch_knn"
    traceable = True

    def __init__(self, layers: str | Sequence[str], dims: int, seed: int) -> None:
        super().__init__(layers)
        self._dims, self._seed = dims, seed
        self.key = f"places(layers={self.chosen},dims={dims},seed={seed})"

    def choose(self, backbone: Backbone, maps: Tensors) -> list[str]:
        """See the class."""
        return _middle(backbone, maps)

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


#: Images of which all places are compared with all kept ones at a time, or the farthest searched.
IMAGES, SEARCHED = 2, 32
#: Kept places that all places of an image are compared with, and those that seem far.
SIZES = (512, 8192)
#: Places that are compared with more kept ones at a time, of an image and of all.
IMAGE_PLACES, PLACES = 16, 256
#: Neighbours of PatchCore's weight.
NEIGHBOURS = 9
#: Places that the greedy choice is made from, and the dimensions it compares.
CANDIDATES, GREEDY_DIMS = 40_000, 32


@with_settings
class PatchKNN(NetworkDetector):
    r"""Largest distance of a place to the nearest kept place of the fit images (arXiv 2106.08265).

    .. math::
        d_p(x) = \min_{m \in M} \|f_p(x) - m\|_2, \qquad s(x) = \max_p d_p(x)

    where f_p is the vector of place p (:class:`~ood_lab.detectors.patch_knn.PlacesColumn`) and
    M, ``[K, D]``, a share of the places of all fit images. The map of an image is d_p(x) by place.
    With ``reweight``, s is multiplied by PatchCore's weight
    :math:`1 - e^{d_p} / \sum_{m \in N} e^{\|f_p - m\|}`, N the 9 nearest kept places of the nearest
    one. Calibration scores come from the kept places of other groups than that of the image.

    Own: PatchCore keeps 1% to 25% of all places; 4,096 are kept here, chosen as greedily. They
    detect as much as all, and more than a random choice (docs/results/places.md).

    Args:
        layers: ``auto`` = the last maps of stride 8 and 16, of a transformer two middle blocks; or
            a list of sub-module names.
        places: K at most; None = as many as ``max_bytes`` holds.
        choice: ``coreset``, greedily the farthest from those kept, or ``random``.
        max_bytes: of M.
        dims: more channels are projected randomly onto so many.
        reweight: multiply by PatchCore's weight.
        seed: of the choice and the projection.
        fit_split: images that M comes from.
    """

    reads = ("maps",)
    multilabel = True
    neighbours = True
    leaves_out = True
    has_maps = True
    formula = "largest distance of a place of the image to the nearest place of fit images"
    suspicious = "a small part of the image looks like no part of the training images"

    layers: Literal["auto"] | Sequence[str] = "auto"
    places: Count | None = 4096
    choice: Literal["random", "coreset"] = "coreset"
    max_bytes: Count = 64 * 2**20
    dims: Count = 256
    reweight: bool = False
    seed: int = 0
    fit_split: FitSplit = "train"

    @cached_property
    def extraction_hook(self) -> PlacesColumn:
        """The features of the places."""
        return PlacesColumn(self.layers, self.dims, self.seed)

    def fit(self, bank: FeatureBank) -> Self:
        """Learns ``bank [K, D]``, ``half_square [K]`` and ``group [K]``, of the fit images."""
        column = self.values(bank)
        n, h, w, d = column.shape
        kept = min(n * h * w, self.max_bytes // (4 * (d + 3)), self.places or n * h * w)
        coreset = self.choice == "coreset"
        rows = self._coreset(column, kept) if coreset else self._random(n * h * w, kept)
        image, place = rows // (h * w), rows % (h * w)
        places = floats(column[image, place // w, place % w])
        self.fitted = {
            "bank": require_finite(self, places),
            "half_square": squared_norms(places) / 2,
            "group": group_codes(bank)[image],
        }
        self.used = {"places": kept, "of_places": n * h * w}
        return self

    def _random(self, total: int, size: int) -> Tensor:
        draws = stream(self.seed, "places").choice(total, size, replace=False, shuffle=False)
        return torch.from_numpy(draws).sort().values

    def _coreset(self, column: Tensor, size: int) -> Tensor:
        """Greedy k-center of some of the places, in few random dimensions, as in PatchCore."""
        n, h, w, d = column.shape
        rows = self._random(n * h * w, min(n * h * w, max(CANDIDATES, 2 * size)))
        image, place = rows // (h * w), rows % (h * w)
        directions = stream(self.seed, "coreset").standard_normal((d, GREEDY_DIMS))
        points = floats(column[image, place // w, place % w]) @ torch.from_numpy(directions).float()
        squares = squared_norms(points)
        distance, chosen = torch.full_like(squares, torch.inf), [0]
        while len(chosen) < size:
            last = points[chosen[-1]]
            new = torch.addmv(squares, points, last, alpha=-2) + last @ last
            torch.minimum(distance, new, out=distance)
            chosen.append(int(distance.argmax()))
        return rows[torch.tensor(chosen)].sort().values

    def score(self, bank: FeatureBank) -> Tensor:
        """The largest distance of each image, ``[N]``, from 0."""
        return self._scores(self.values(bank), None)

    def left_out_scores(self, bank: FeatureBank) -> Tensor:
        """Of the fit images, each compared with the kept places of other groups only."""
        return self._scores(self.values(bank), group_codes(bank))

    def maps(self, bank: FeatureBank) -> Tensor:
        """The distance of every place, ``[N, h, w] float32``."""
        column = self.values(bank)
        with full_float32():
            parts = [
                self._distances(floats(on_device(part)).flatten(0, 2), None).cpu()
                for part in column.split(IMAGES)
            ]
        return torch.cat(parts).view(column.shape[:3])

    def _scores(self, column: Tensor, groups: Tensor | None) -> Tensor:
        if torch.jit.is_tracing():
            return self._score(column, groups)
        size = SEARCHED if compute_device().type == "cpu" else IMAGES
        each = [None] * -(-len(column) // size) if groups is None else groups.split(size)
        with full_float32():
            parts = [*map(self._score, column.split(size), each)]
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.float64)

    def _products(self, places: Tensor, groups: Tensor | None, step: int = 1) -> Tensor:
        """``f · m - |m|² / 2`` ``[n, K / step]`` of places and every ``step``-th kept one, m."""
        bank, half = self.fitted_tensors("bank", "half_square")
        near = torch.addmm(-half[::step], places, bank[::step].T)
        if groups is None:
            return near
        same = on_device(groups[:, None] == self.fitted["group"][::step])
        return near.masked_fill(same, -torch.inf)

    def _distances(self, places: Tensor, groups: Tensor | None, step: int = 1) -> Tensor:
        """Of places ``[n, D]`` to the nearest of every ``step``-th kept one, ``[n]``."""
        near = self._products(places, groups, step).amax(dim=1)
        return (squared_norms(places) - 2 * near).clamp(min=0).sqrt()

    def _farthest(self, places: Tensor, groups: Tensor | None) -> Tensor:
        """The place ``[B, D]`` of each image ``[B, P, D]`` that is farthest from the kept ones.

        The distance to some of them is at least that to all, so a place is compared with more only
        while its distance exceeds the largest that is certain; those that seem farthest come first.
        """
        kept = len(self.fitted["bank"])
        steps = [*(kept // size for size in SIZES if kept >= 2 * size), 1]
        (n, p), flat = places.shape[:2], places.flatten(0, 1)
        of_places = None if groups is None else groups.repeat_interleave(p)
        bounds = self._distances(flat, of_places, steps[0])
        level = torch.zeros_like(bounds, dtype=torch.long)
        while True:
            certain = bounds.masked_fill(level < len(steps) - 1, -torch.inf).view(n, p)
            largest, farthest = certain.max(dim=1)
            unsure = (level < len(steps) - 1) & ~(bounds <= largest.repeat_interleave(p))
            images = unsure.view(n, p).any(dim=1).nonzero().flatten()
            if not len(images):
                return places[torch.arange(n), farthest]
            seeming = bounds.masked_fill(~unsure, -torch.inf).view(n, p)[images]
            some = seeming.topk(min(p, IMAGE_PLACES, max(1, PLACES // len(images))), dim=1).indices
            rows = (images[:, None] * p + some).flatten()
            rows = rows[unsure[rows]]
            now = int(level[rows].min())  # first all that are compared with few: calls cost, too
            rows = rows[level[rows] == now]
            group = None if of_places is None else of_places[rows]
            bounds[rows] = self._distances(flat[rows], group, steps[now + 1])
            level[rows] = now + 1

    def _score(self, column: Tensor, groups: Tensor | None) -> Tensor:
        places = floats(on_device(column)).flatten(1, 2)
        if torch.jit.is_tracing() or places.is_cuda:  # which is faster than to wait for bounds
            of_places = None if groups is None else groups.repeat_interleave(int(places.shape[1]))
            every = self._distances(places.flatten(0, 1), of_places)
            score, at = every.unflatten(0, places.shape[:2]).max(dim=1)
            query = places[torch.arange(len(score), device=at.device), at]
        else:
            query = self._farthest(places, groups)
            score = self._distances(query, groups)
        if not self.reweight:
            return score.double().cpu()
        bank, half = self.fitted_tensors("bank", "half_square")
        products = self._products(query, groups)
        around = torch.addmm(-half, bank[products.argmax(dim=1)], bank.T)
        around = around.masked_fill(products == -torch.inf, -torch.inf)
        k = min(NEIGHBOURS, int(bank.shape[0]))
        rows = around.topk(k, dim=1).indices
        squares = squared_norms(query)[:, None] - 2 * products.gather(1, rows)
        share = (score - squares.clamp(min=0).sqrt().logsumexp(dim=1)).exp()
        return (score * (1 - share)).double().cpu()
