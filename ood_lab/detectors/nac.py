"""NAC-UE: how often fit images had the neuron states of an image, at the last layer or at more."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
import torch
from annotated_types import Ge, MultipleOf
from torch import Tensor

from ood_lab.common.arguments import Count, Positive, check_values
from ood_lab.common.errors import UserError
from ood_lab.common.hints import check_known
from ood_lab.common.tensor_arithmetic import permutation
from ood_lab.common.tensor_file import Tensors
from ood_lab.detectors.base import FittedDetector, with_settings
from ood_lab.detectors.support.chunked_arithmetic import map_rows, row_chunks
from ood_lab.detectors.support.compute_device import head_on_device, on_device
from ood_lab.detectors.support.layer_probe import LayerColumn, Layers, channels_first, split_layers
from ood_lab.detectors.support.requirements import (
    require_column,
    require_labels,
)
from ood_lab.features.bank import FeatureBank
from ood_lab.features.extraction_hooks import GradientColumn
from ood_lab.models.backbone import Backbone
from ood_lab.models.head_kind import Part
from ood_lab.models.output import Output
from ood_lab.schema.run_record import Facts


class InfluenceColumn(LayerColumn, GradientColumn):
    r"""Activation times gradient of every channel of every layer, as :class:`LayerColumn` packs it.

    .. math::
        \Big(\sum_{HW} a_l\Big) \odot
        \Big(\sum_{HW} \frac{\partial\,\mathrm{KL}}{\partial a_l}\Big), \qquad
        \mathrm{KL} = -\tfrac1C \sum_c \log p_c

    with the maps a_l ``[C_l, H, W]``: the sums are multiplied, as in the code of NAC's authors
    (pytorch-ood sums the products). One backward pass, which ends at the first of the layers.
    """

    owner = "nac"
    hint = " (the input of the last layer is called 'features')"

    def __init__(self, layers: Layers) -> None:
        super().__init__(layers)
        self.key = self.direction_key = f"influence(layers={self.chosen})"

    def of_map(self, map_: Tensor) -> Tensor:
        """The sum over the positions of one layer's maps, or of their gradient."""
        return map_.float().sum(dim=2)

    def direction(self, logits: Tensor) -> Tensor:
        """That of KL, scaled: of a network that is sure of nothing, half precision would lose it.

        :meth:`of_gradient` multiplies by the scale.
        """
        towards, scale = _towards(logits)
        return towards / scale

    def inputs(self, image: Tensor, maps: Tensors) -> list[Tensor]:
        """The maps of the layers."""
        return [maps[name] for name in self.names]

    def of_gradient(
        self,
        backbone: Backbone,
        image: Tensor,
        output: Output,
        maps: Tensors,
        gradient: Sequence[Tensor],
    ) -> Tensor:
        """Sums of the maps times those of their gradient; ``layers`` has to come before."""
        _, scale = _towards(output.logits)
        pairs = zip(self.inputs(image, maps), gradient, strict=True)
        sums = [[self.of_map(channels_first(backbone, one)) for one in pair] for pair in pairs]
        return self.packed([(a * g.double() * scale).float() for a, g in sums])


def _towards(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of KL at the logits, ``[B, C] float64``, and its largest entry, ``[B, 1]``."""
    towards = logits.double().softmax(dim=1) - 1 / logits.shape[1]
    return towards, towards.abs().amax(dim=1, keepdim=True).clamp(min=1e-30)


def bin_edges(m: int) -> Tensor:
    """M ascending edges from 0 that leave M − 1 bins, narrow near 0 and 1: ``[m] float64``.

    The lower half is log_1000 of M/2 equal steps from 1 to √1000, the upper one its mirror image;
    the last bin also takes states of exactly 1.
    """
    low = np.log(np.linspace(1, math.sqrt(1000), m // 2)) / math.log(1000)
    edges = np.concatenate([low[:-1], (1 - low)[::-1], [1.2]])
    edges[-2] += 0.01
    return torch.from_numpy(edges)


Bins = Annotated[int, Ge(4), MultipleOf(2)]


@dataclass(frozen=True)
class StateHistogram:
    """The bins in which the states σ(α · influence) of one layer are counted.

    Attributes:
        bins: M, edges.
        full: O, images that fill a bin.
        steepness: α.
    """

    bins: Bins
    full: Positive
    steepness: Positive

    def places(self, influence: Tensor) -> Tensor:
        """Bin of the state of every neuron: ``[b, D] int64``."""
        state = torch.sigmoid(self.steepness * influence)
        return torch.bucketize(state, on_device(bin_edges(self.bins)), right=True) - 1


def histograms_of(
    common: StateHistogram, layers: Layers | Mapping[str, Mapping[str, float] | None]
) -> dict[str, StateHistogram]:
    """The histogram of every layer that ``layers`` names; empty where it is a single word.

    Raises:
        UserError: there is no layer, or a setting that histograms do not have.
    """
    if isinstance(layers, str):
        return {}
    by_layer = dict(layers) if isinstance(layers, Mapping) else dict.fromkeys(layers)
    if not by_layer:
        raise UserError("detector.nac.layers is empty: name a layer, or null for the last one")
    histograms = {}
    for name, changes in by_layer.items():
        settings, key = dict(changes or {}), f"detector.nac.layers.{name}"
        check_known(settings, asdict(common), f"{key}.{{name}}")
        check_values(StateHistogram, settings, key)
        histograms[name] = replace(common, **settings)
    return histograms


#: What ``layers`` calls the input of the last layer.
LAST = "features"


class _Layer(NamedTuple):
    """One layer; ``influence`` of rows of ``tensors`` is that of its neurons, ``[b, D_l]``.

    ``key`` is the name of its entry of ``fitted``.
    """

    key: str
    histogram: StateHistogram
    influence: Callable[..., Tensor]
    tensors: tuple[Tensor, ...]

    def coverage(self, chosen: Tensor) -> Tensor:
        """min(n/O, 1) of every neuron and bin over rows ``chosen``: ``[D_l, M - 1] float64``."""
        d, wide = self.tensors[0].shape[1], self.histogram.bins - 1
        offset = on_device(torch.arange(d) * wide)
        counts = torch.zeros(d * wide, dtype=torch.float64)
        for rows in row_chunks(len(chosen), d):
            blocks = (on_device(values[chosen[rows]]).double() for values in self.tensors)
            places = self.histogram.places(self.influence(*blocks)) + offset
            counts += places.flatten().bincount(minlength=d * wide).cpu()
        return (counts / self.histogram.full).clamp(max=1).view(d, wide)

    def score(self, coverage: Tensor) -> Tensor:
        """Negative mean coverage of the states of every row, ``[N]``."""
        neurons = on_device(torch.arange(len(coverage)))

        def negative(*blocks: Tensor) -> Tensor:
            places = self.histogram.places(self.influence(*blocks))
            return -coverage[neurons, places].mean(dim=1)

        return map_rows(negative, *self.tensors)


#: With other settings it reads more.
READS: tuple[Part, ...] = ("features", "logits", "head", "labels")


@with_settings
class NAC(FittedDetector):
    r"""Uncertainty by neuron activation coverage (NAC-UE, arXiv 2306.02879).

    .. math::
        a = \sigma\big(\alpha \, x \odot W^\top (p - \tfrac1C)\big), \qquad
        s(x) = -\frac1D \sum_d \min\Big(\frac{n_d[\mathrm{bin}(a_d)]}{O}, 1\Big)

    where Wᵀ(p − 1/C) is the gradient at the features of KL(uniform ‖ p), p = softmax(z), and n_d
    counts the fit images whose state of feature d is in the same bin. Fitted on as many images
    of each class (``fit_images`` / C, or all of the smallest class).

    With ``layers``, s is the mean over layers. In a layer of maps, x is the sum of a channel over
    its positions and the gradient the sum of that at the maps (:class:`InfluenceColumn`): one
    backward pass inside the extraction pass, over the fit split as well.

    The authors' settings: 50 bins with O 50, α 100 (CIFAR) or O 10, α 3000 (ImageNet, ResNet-50)
    at the last layer; for CIFAR-10 also 500 bins, O 100, α 1000 at layer3, 50, 5, 0.001 at layer2,
    500, 100, 0.001 at layer1. Own: pytorch-ood sums layers and starts its bins at 1e-6, where two
    thirds of the images tie.

    Args:
        bins: M, an even number; edges of the histogram.
        full: O, images that fill a bin.
        steepness: α of the sigmoid.
        fit_images: about so many fit images are counted; None = all, labels not needed.
        seed: of their choice.
        fit_split: images they are taken from.
        layers: None = the last one; names of sub-modules, of which ``features`` is the input of the
            last one; names with settings of their own, ``{name: {bins, full, steepness}}``, each of
            which may be left out; ``stages`` = last sub-module of every spatial resolution; or
            ``conv`` = every Conv2d.
    """

    formula = "−mean_d min(n_d[bin of σ(α x_d (Wᵀ(p − 1/C))_d)]/O, 1)"
    reads = READS
    suspicious = "neurons are in states that training images do not cover"

    bins: Bins = 50
    full: Positive = 50
    steepness: Positive = 100
    fit_images: Count | None = 1000
    seed: int = 0
    layers: Layers | Mapping[str, Mapping[str, float] | None] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._common = StateHistogram(self.bins, self.full, self.steepness)
        self._named = histograms_of(self._common, [LAST] if self.layers is None else self.layers)
        if self.extraction_hook is not None:
            last: tuple[Part, ...] = ("features", "head") if LAST in self._named else ()
            self.reads = (*last, "logits", "labels", "maps", "gradients")

    @cached_property
    def extraction_hook(self) -> InfluenceColumn | None:
        """The influences in layers of maps; None where the features suffice."""
        named = [name for name in self._named if name != LAST]
        maps = self.layers if isinstance(self.layers, str) else named
        return InfluenceColumn(maps) if maps else None

    def fit(self, bank: FeatureBank) -> Self:
        """Learns ``coverage [D, M - 1]`` in [0, 1], and ``<l>.coverage`` of layer l of maps."""
        if self.fit_images is not None:
            require_labels(self, bank)
        chosen = self._balanced(bank.labels)
        self.fitted = {layer.key: layer.coverage(chosen) for layer in self._layers(bank)}
        return self

    def _balanced(self, labels: Tensor) -> Tensor:
        """Rows counted: the same number of every class, at random, or all."""
        if self.fit_images is None:
            return torch.arange(len(labels))
        labelled = (labels >= 0).nonzero().flatten()
        shuffled = labelled[permutation(len(labelled), self.seed)]
        by_class = shuffled[labels[shuffled].argsort(stable=True)]
        counts = labels[labelled].unique(return_counts=True)[1]
        per_class = max(1, min(self.fit_images // len(counts), int(counts.min())))
        rows = [of_class[:per_class] for of_class in by_class.split(counts.tolist())]
        return torch.cat(rows).sort().values

    def _layers(self, bank: FeatureBank) -> Iterator[_Layer]:
        """All layers, the last one first."""
        if LAST in self._named:
            tensors = (bank.features, bank.logits)
            yield _Layer("coverage", self._named[LAST], _last_influence(bank), tensors)
        if self.extraction_hook is not None:
            values, widths = split_layers(require_column(self, bank, self.extraction_hook))
            histograms = [histogram for name, histogram in self._named.items() if name != LAST]
            parts = values.split(widths.tolist(), dim=1)
            for place, part in enumerate(parts):
                histogram = histograms[place] if histograms else self._common
                yield _Layer(f"{place}.coverage", histogram, lambda values: values, (part,))

    def score(self, bank: FeatureBank) -> Tensor:
        """Negative coverage, ``[N]`` in [-1, 0]."""
        scores = [layer.score(*self.fitted_tensors(layer.key)) for layer in self._layers(bank)]
        return torch.stack(scores).mean(dim=0)

    def describe(self) -> Facts:
        """With the layers of the network, and the settings of each where it has its own."""
        layers: Any = self.layers
        if self.extraction_hook is not None:
            layers = {name: asdict(histogram) for name, histogram in self._named.items()} or (
                self.extraction_hook.names or self.layers
            )
        return super().describe() | {"layers": layers}


def _last_influence(bank: FeatureBank) -> Callable[[Tensor, Tensor], Tensor]:
    weight, _ = head_on_device(bank)

    def influence(x: Tensor, z: Tensor) -> Tensor:
        return x * ((z.softmax(dim=1) - 1 / z.shape[1]) @ weight)

    return influence
