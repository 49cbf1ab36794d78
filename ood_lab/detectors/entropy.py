"""Entropy of the predicted distribution."""

from __future__ import annotations

from torch import Tensor

from ood_lab.detectors.support.logit_detector import LogitDetector


class Entropy(LogitDetector):
    r"""Shannon entropy of the softmax (arXiv 2012.06575).

    .. math:: s(x) = -\sum_c p_c \log p_c, \quad p = \mathrm{softmax}(z)

    Nothing is fitted. Own: pytorch-ood clips p at 1e-7 in float32, which ties confident images;
    here log p is a log-softmax in float64.
    """

    formula = "−Σ p log p"
    suspicious = "the probability is spread over many classes"

    def of_logits(self, z: Tensor) -> Tensor:
        """Entropy in nats, ``[n]`` in [0, log C]."""
        log_p = z.log_softmax(dim=1)
        return -(log_p.exp() * log_p).sum(dim=1)
