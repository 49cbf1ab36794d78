"""KLM: KL divergence to the closest typical posterior."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from ood_lab.detectors.base import Detector, FitSplit, with_settings
from ood_lab.detectors.support.chunked_arithmetic import blocks, map_rows
from ood_lab.detectors.support.compute_device import on_device
from ood_lab.features.bank import FeatureBank


@with_settings
class KLM(Detector):
    r"""KL matching (arXiv 1911.11132).

    .. math::
        d_k = \mathrm{mean}\{p(x') : \arg\max p(x') = k\}, \qquad
        s(x) = \min_k \mathrm{KL}(p(x) \,\|\, d_k)
             = \sum_c p_c \log p_c - \max_k \sum_c p_c \log d_{kc}

    with p = softmax(z) in R^C and one template d_k for every class k that some fit image is
    predicted as (K ≤ C; other classes have no template). Labels are not used. The paper and
    OpenOOD estimate templates on validation images.

    Own: pytorch-ood's formula is the same, but its fit holds all N×C probabilities and masks
    every row once a class. Here the fit is streamed. Template entries that underflow count as
    2e-308, so that the divergence stays finite.

    Args:
        fit_split: images that the templates are the means of.
    """

    reads = ("logits",)
    formula = "min_k KL(p ‖ mean p of the images predicted k)"
    suspicious = "the probabilities resemble those of no class"

    fit_split: FitSplit = "val"

    def fit_memory(self, n: int, d: int, c: int) -> int:
        """Sums and templates, ``[C, C] float64`` each."""
        return 3 * 8 * c * c

    def fit(self, bank: FeatureBank) -> Self:
        """Learns ``log_templates [K, C]`` and ``classes [K]``."""
        c, predictions = bank.num_classes, bank.predictions
        sums = on_device(torch.zeros(c, c, dtype=torch.float64))
        for rows, z in blocks(bank.logits):
            sums.index_add_(0, on_device(predictions[rows]), z.double().softmax(dim=1))
        counts = predictions.bincount(minlength=c)
        classes = counts.nonzero().flatten()
        templates = sums.cpu()[classes] / counts[classes, None]
        smallest = torch.finfo(torch.float64).tiny
        self.fitted = {"log_templates": templates.clamp(min=smallest).log(), "classes": classes}
        self.used = {"templates": len(classes)}
        return self

    def score(self, bank: FeatureBank) -> Tensor:
        """Smallest divergence, ``[N]``, from 0 (up to rounding)."""
        (log_templates,) = self.fitted_tensors("log_templates")

        def divergence(z: Tensor) -> Tensor:
            log_p = z.log_softmax(dim=1)
            p = log_p.exp()
            return (p * log_p).sum(dim=1) - (p @ log_templates.T).amax(dim=1)

        return map_rows(divergence, bank.logits)
