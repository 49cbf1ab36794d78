"""OpenMax: odds of an unknown class, from extreme-value fits of distances in logit space."""

from __future__ import annotations

from statistics import median
from typing import Literal, Self

import torch
from torch import Tensor

from ood_lab.common.arguments import Count, Positive
from ood_lab.common.tensor_file import Tensors
from ood_lab.detectors.base import DetectorRefusal, FittedDetector, with_settings
from ood_lab.detectors.support.chunked_arithmetic import (
    blocks,
    map_rows,
    squared_distances,
)
from ood_lab.detectors.support.compute_device import on_device
from ood_lab.detectors.support.requirements import (
    require_labels,
    warn_classes,
)
from ood_lab.features.bank import FeatureBank
from ood_lab.features.image_groups import independent_share, unit_of


def fit_weibull(values: Tensor) -> tuple[Tensor, Tensor]:
    r"""Shape k and log scale of many samples at once.

    The likelihood equation

    .. math::
        \frac{\sum_i y_i^k \log y_i}{\sum_i y_i^k} - \frac1k - \mathrm{mean} \log y = 0

    increases in k; it is solved by bisection of log k, on logarithms relative to the largest
    value, so that any k is finite: y^k never appears.

    Args:
        values: ``[S, n] float64`` above 0, one sample per row, padded with NaN; at least two
            different values per row.

    Returns:
        ``k [S]`` and ``log(scale) [S]``.
    """
    present = ~values.isnan()
    largest = values.nan_to_num(nan=0).amax(dim=1, keepdim=True)
    relative = torch.log1p((values - largest) / largest)
    mean = relative.nanmean(dim=1)
    hidden = relative.masked_fill(~present, -torch.inf)
    filled = relative.masked_fill(~present, 0)

    low, high = mean.new_full(mean.shape, -20), mean.new_full(mean.shape, 40)
    for _ in range(100):
        middle = (low + high) / 2
        k = middle.exp()
        weighted = (hidden * k[:, None]).softmax(dim=1).mul(filled).sum(dim=1)
        above = weighted - 1 / k - mean > 0
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    k = ((low + high) / 2).exp()
    log_mean = (hidden * k[:, None]).logsumexp(dim=1) - present.sum(dim=1).log()
    return k, largest[:, 0].log() + log_mean / k


#: OpenOOD's tail, which ``auto`` does not exceed.
LARGEST = 20
#: Distances closer than this share of the largest are the same up to rounding.
SAME = 1e-9


@with_settings
class OpenMax(FittedDetector):
    r"""Log odds of the unknown class (arXiv 1511.06233).

    Fit, on correctly classified images of class c: μ_c ``[C]`` is the mean of their logits; a
    Weibull distribution (shape k_c, scale λ_c) is fitted by maximum likelihood to the ``tail``
    largest distances ‖z - μ_c‖₂, shifted to start at ``translate``: y = d - d_min + translate.

    .. math::
        w_c = 1 - e^{-(y_c / \lambda_c)^{k_c}}, \quad
        \omega_c = \frac{\alpha + 1 - r_c}{\alpha} \text{ for the } \alpha \text{ largest logits
        (rank } r_c \text{), else } 0, \\
        v_c = z_c (1 - w_c \omega_c), \quad u = \sum_c z_c w_c \omega_c, \qquad
        s(x) = u - \log \sum_c e^{v_c} = \log \frac{P(\mathrm{unknown})}{1 - P(\mathrm{unknown})}

    The log odds rank as P(unknown) does and neither overflow nor tie near 1. A class whose tail
    holds fewer than two different distances (as with up to two correct images) has no
    distribution: its w is 0, its logit stays unchanged, and a warning names it. α is at most C.

    Own: pytorch-ood computes distances only to classes that some image of the same batch is
    predicted as, so that its scores depend on the batch, and fits on wrongly classified images
    too. ``translate`` is 1 in OpenOOD (libmr 0.1.9) and 10000 in the authors' library.

    Args:
        alpha: number of logits revised.
        tail: number of distances fitted, a class; ``auto``: a twentieth of its correct images, at
            most OpenOOD's 20. The tail of few images would be all of them: the Weibull then
            describes typical distances, and the unknown class takes typical images.
        translate: where the shifted tail starts, above 0, in units of the logits.
        fit_split: images, with labels, that μ and the distributions are estimated on.
    """

    reads = ("logits", "level", "labels", "own_classes")
    formula = "odds of an unknown class from Weibull tails of distances in z"
    suspicious = "the logits are in the tail of their class"

    alpha: Count = 3
    tail: Count | Literal["auto"] = "auto"
    translate: Positive = 1.0

    def fit_memory(self, n: int, d: int, c: int) -> int:
        """Means ``[C, C]``, tails ``[C, tail]`` and one distance per image, all float64."""
        return 8 * (3 * c * c + 8 * c * self._longest + 4 * n)

    def fit(self, bank: FeatureBank) -> Self:
        """Learns ``means [C, C]``, ``shape``, ``log_scale``, ``start`` and ``modelled`` ``[C]``."""
        require_labels(self, bank)
        c = bank.num_classes
        correct = torch.nonzero(bank.predictions == bank.labels).flatten()
        if len(correct) == 0:
            raise DetectorRefusal(
                f"OpenMax needs correctly classified images: none of {len(bank):,} in the "
                f"{self.fit_split} split is; check the class order of the weights"
            )
        classes = bank.labels[correct]
        sums = on_device(torch.zeros(c, c, dtype=torch.float64))
        for rows, z in blocks(bank.logits, correct):
            sums.index_add_(0, on_device(classes[rows]), z.double())
        means = sums.cpu() / classes.bincount(minlength=c).clamp(min=1)[:, None]
        centers = on_device(means)
        distances = torch.empty(len(correct), dtype=torch.float64)
        for rows, z in blocks(bank.logits, correct):
            distances[rows] = (z.double() - centers[on_device(classes[rows])]).norm(dim=1).cpu()
        self.fitted = {"means": means} | self._tails(distances, classes, c, bank)
        modelled = int(self.fitted["modelled"].sum())
        self.used = {"alpha": min(self.alpha, c), "classes": modelled}
        return self

    @property
    def _longest(self) -> int:
        return LARGEST if isinstance(self.tail, str) else self.tail

    def _tails(self, distances: Tensor, classes: Tensor, c: int, bank: FeatureBank) -> Tensors:
        share = independent_share(bank)
        tails = torch.full((c, self._longest), torch.nan, dtype=torch.float64)
        sizes = classes.bincount(minlength=c).tolist()
        for label, of_class in enumerate(distances[classes.argsort()].split(sizes)):
            n = len(of_class)
            tail = min(LARGEST, int(n * share) // 20) if self.tail == "auto" else self._longest
            tails[label, : min(tail, n)] = of_class.topk(min(tail, n)).values
        per_class = int(median(sizes) * share)
        if self.tail == "auto" and 2 <= per_class // 20 < LARGEST:
            unit = unit_of(bank)
            self.chosen = f"tail = {per_class // 20}, for {per_class:,} correct {unit}s per class"
        smallest = tails.nan_to_num(nan=torch.inf).amin(dim=1)
        largest = tails.nan_to_num(nan=0).amax(dim=1)
        modelled = largest - smallest > SAME * largest
        warn_classes(
            self,
            torch.nonzero(~modelled).flatten().tolist(),
            "have too few correct images to fit: their logits stay unchanged",
        )
        start = smallest - self.translate
        shape, log_scale = (torch.zeros(c, dtype=torch.float64) for _ in range(2))
        fitted = fit_weibull(tails[modelled] - start[modelled, None])
        shape[modelled], log_scale[modelled] = fitted
        start = torch.where(modelled, start, 0)
        return {"shape": shape, "log_scale": log_scale, "start": start, "modelled": modelled}

    def score(self, bank: FeatureBank) -> Tensor:
        """Log odds of the unknown class, ``[N]``."""
        alpha = min(self.alpha, bank.num_classes)
        ranked = on_device((alpha - torch.arange(alpha, dtype=torch.float64)) / alpha)
        names = ("means", "start", "shape", "log_scale", "modelled")
        weibull = dict(zip(names, self.fitted_tensors(*names), strict=True))

        def log_odds(z: Tensor) -> Tensor:
            top, classes = z.topk(alpha, dim=1)
            revised = top * _unknown(z, weibull).gather(1, classes) * ranked
            v = z.scatter(1, classes, top - revised)
            return revised.sum(dim=1) - v.logsumexp(dim=1)

        return map_rows(log_odds, bank.logits)


def _unknown(z: Tensor, weibull: Tensors) -> Tensor:
    """Every w_c, ``[n, C]``: Weibull CDF of the distance to its mean."""
    y = squared_distances(z, weibull["means"]).sqrt_().sub_(weibull["start"])
    exponent = weibull["shape"] * (y.clamp(min=0).log() - weibull["log_scale"])
    return torch.where(weibull["modelled"], -torch.expm1(-exponent.exp()), 0)
