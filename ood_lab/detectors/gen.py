"""GEN: generalised entropy of the largest probabilities."""

from __future__ import annotations

import torch
from torch import Tensor

from ood_lab.common.arguments import Count, Positive
from ood_lab.detectors.base import with_settings
from ood_lab.detectors.support.logit_detector import LogitDetector


@with_settings
class GEN(LogitDetector):
    r"""Generalised entropy (CVPR 2023, Liu et al.).

    .. math:: s(x) = \sum_{j=1}^{M} p_{(j)}^\gamma (1 - p_{(j)})^\gamma,
        \quad p = \mathrm{softmax}(z), \quad p_{(1)} \ge p_{(2)} \ge \dots

    over the M largest probabilities (all C where M > C). Nothing is fitted.

    Own: pytorch-ood clips p at 1e-7 in float32, which ties every confident image, takes all C
    and divides by C. Here log p and log(1 − p) are exact in float64.

    Args:
        gamma: γ > 0.
        m: M, how many probabilities count.
    """

    formula = "Σ over the m largest p of (p(1 − p))^γ"
    suspicious = "the probability is spread over many classes, small ones included"

    gamma: Positive = 0.1
    m: Count = 100

    def of_logits(self, z: Tensor) -> Tensor:
        """Generalised entropy, ``[n]``, from 0."""
        largest = z.topk(min(self.m, z.shape[1]), dim=1).values
        total = z.logsumexp(dim=1, keepdim=True)
        log_p = largest - total
        log_rest = torch.log1p(-log_p.exp().clamp(max=0.5))
        # Only the largest can exceed 1/2, where 1 - p cancels: sum the others instead.
        rest = z.topk(z.shape[1] - 1, dim=1, largest=False).values.logsumexp(dim=1)
        log_rest[:, 0] = rest - total[:, 0]
        return (self.gamma * (log_p + log_rest)).exp().sum(dim=1)
