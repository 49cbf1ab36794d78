"""Gram: deviation of feature correlations from the range seen for the predicted class."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Self

import torch
from annotated_types import MinLen
from torch import Tensor

from ood_lab.common.arguments import Count, InnerShare
from ood_lab.common.tensor_arithmetic import permutation
from ood_lab.common.tensor_file import Tensors
from ood_lab.detectors.base import DetectorRefusal, FitSplit, with_settings
from ood_lab.detectors.support.chunked_arithmetic import row_chunks
from ood_lab.detectors.support.layer_probe import LayerColumn, Layers, split_layers
from ood_lab.detectors.support.network_scores import NetworkDetector
from ood_lab.features.bank import FeatureBank
from ood_lab.features.image_groups import group_codes, group_count, unit_of
from ood_lab.schema.run_record import Facts

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

    def __init__(self, layers: Layers, powers: Sequence[int]) -> None:
        super().__init__(layers)
        self.powers = sorted(powers)
        self.key = f"gram(layers={self.chosen},powers={'_'.join(map(str, self.powers))})"

    def of_map(self, map_: Tensor) -> Tensor:
        """Gram vectors of one layer's maps."""
        return gram_vectors(map_, self.powers)

    def width_of(self, channels: int) -> int:
        """As many numbers as there are powers, for every channel."""
        return channels * len(self.powers)


@with_settings
class Gram(NetworkDetector):
    r"""Total deviation of the Gram vectors from their class ranges (arXiv 1912.12510).

    .. math::
        g_{l,p} = \mathrm{rows}\big(F_l^p {F_l^p}^\top\big)^{1/p}, \quad
        \delta_l = \sum_{p} \sum_{i} \frac{[\min_i - g_i]_+}{|\min_i + 10^{-6}|}
        + \frac{[g_i - \max_i]_+}{|\max_i + 10^{-6}|}, \quad
        s = \sum_l \frac{\delta_l / \max_c p_c}{\mathbb{E}[\delta_l / \max_c p_c]}

    where min and max are those of the class that the image is predicted as, over 90% of the fit
    images by their predicted class, and E is the mean over the other 10% (1 where that is 0: no
    held-out image deviates). Predicted classes, a held-out part and the division by the
    confidence max p are the authors' way, except that they hold out test images.

    An image predicted as a class that no fit image was predicted as is judged by the range over
    all fit images; ``describe`` counts such classes. Most ID images of a small layer list lie
    within all ranges and tie at 0: see the tie share in the results.

    pytorch-ood's version keeps every Gram vector in memory, forms the C×C matrices, overflows
    float32 at large activations and wants the network as a list of consecutive modules.

    Args:
        layers: ``stages`` = last sub-module of every spatial resolution; ``conv`` = every
            Conv2d; or a list of sub-module names. Tokens [B, N, D] are positions.
        powers: orders p of the Gram matrices.
        held_out: share of the fit images that estimates E.
        seed: of the split.
        fit_split: images that the ranges and E come from.
    """

    reads = ("logits", "maps")
    formula = "deviation of feature correlations from the range of the predicted class"
    suspicious = "correlations of feature maps are outside the range of the class"

    layers: Layers = "stages"
    powers: Annotated[Sequence[Count], MinLen(1)] = (1, 2, 3, 4, 5)
    held_out: InnerShare = 0.1
    seed: int = 0
    fit_split: FitSplit = "train"

    @cached_property
    def extraction_hook(self) -> GramColumn:
        """The Gram vectors."""
        return GramColumn(self.layers, self.powers)

    def fit_memory(self, n: int, d: int, c: int) -> int:
        """Two ranges per class and the held-out rows.

        0 before the column knows its backbone (:meth:`GramColumn.layers`).
        """
        return 4 * (2 * c + round(n * self.held_out)) * self.extraction_hook.width

    def less_memory(self, d: int, c: int, limit_bytes: int) -> str:
        """Shorter ranges."""
        return "give fewer layers or powers with detector.gram.layers, detector.gram.powers"

    def fit(self, bank: FeatureBank) -> Self:
        """Learns ``low``, ``high`` [C, ΣC_l·P], ``widths``, ``expected`` [L], ``seen`` [C]."""
        n, codes = group_count(bank), group_codes(bank)
        n_held = round(n * self.held_out)
        if not 0 < n_held < n:
            raise DetectorRefusal(
                f"Gram: {n} fit {unit_of(bank)}s cannot be split {self.held_out:.0%} off"
            )
        order = permutation(n, self.seed)
        held_out = torch.isin(codes, order[:n_held])
        held, kept = bank.rows(held_out), (~held_out).nonzero().flatten()
        self.fitted = self._ranges(bank, kept)
        expected = self._deviations(held).mean(dim=0)
        self.fitted["expected"] = torch.where(expected > 0, expected, 1.0)
        return self

    def _ranges(self, bank: FeatureBank, kept: Tensor) -> Tensors:
        vectors, widths = split_layers(self.values(bank))
        classes, predictions = bank.num_classes, bank.predictions
        low = vectors.new_full((classes, vectors.shape[1]), torch.inf)
        high = -low
        for place in row_chunks(len(kept), vectors.shape[1]):
            rows = kept[place]
            index = predictions[rows, None].expand(-1, vectors.shape[1])
            low.scatter_reduce_(0, index, vectors[rows], "amin")
            high.scatter_reduce_(0, index, vectors[rows], "amax")
        seen = torch.bincount(predictions[kept], minlength=classes) > 0
        low[~seen], high[~seen] = low.amin(dim=0), high.amax(dim=0)
        return {"low": low, "high": high, "seen": seen, "widths": widths}

    def _deviations(self, bank: FeatureBank) -> Tensor:
        """δ_l of every row over max p, ``[N, L] float64``."""
        low, high, widths = (self.fitted[key] for key in ("low", "high", "widths"))
        vectors = self.values(bank)[:, : low.shape[1]]
        predictions, parts = bank.predictions, []
        for rows in row_chunks(len(bank), vectors.shape[1]):
            part, c = vectors[rows], predictions[rows]
            below = (low[c] - part).relu_() / (low[c] + 1e-6).abs()
            above = (part - high[c]).relu_() / (high[c] + 1e-6).abs()
            layers = (below + above).split(widths.tolist(), dim=1)
            parts.append(torch.stack([x.sum(dim=1, dtype=torch.float64) for x in layers], dim=1))
        return torch.cat(parts) / bank.logits.double().softmax(dim=1).amax(dim=1, keepdim=True)

    def score(self, bank: FeatureBank) -> Tensor:
        """Σ_l δ_l / E[δ_l], from 0."""
        return (self._deviations(bank) / self.fitted["expected"]).sum(dim=1)

    def describe(self) -> Facts:
        """With how many classes had no fit image."""
        seen = self.fitted.get("seen")
        unseen = None if seen is None else int((~seen).sum())
        return super().describe() | {"classes_without_fit_images": unseen}
