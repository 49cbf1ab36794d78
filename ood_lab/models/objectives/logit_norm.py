"""LogitNorm: cross-entropy of logits of one length."""

from __future__ import annotations

from torch import Tensor

from ood_lab.common.arguments import Positive, with_settings
from ood_lab.common.tensor_file import Tensors
from ood_lab.models.objectives.base import LogitsObjective, Step


@with_settings
class LogitNorm(LogitsObjective):
    """``CE(f / (tau (|f| + 1e-7)), y)`` (arXiv 2205.09310), |f| the L2 norm over the classes.

    The length of the logits is no way to lower the loss, so the network is not overconfident. It
    is normalised only in training: detectors read the plain logits. pytorch-ood's ``LogitNorm``
    divides by |f|, without the 1e-7 of the authors' code.

    Args:
        tau: temperature; the paper chooses it on validation data, 0.04 on CIFAR-10.
    """

    tau: Positive = 0.04

    def of_logits(self, step: Step, logits: Tensor, outliers: Tensor | None) -> Tensors:
        """The one term."""
        lengths = logits.norm(dim=1, keepdim=True) + 1e-7
        return {"logit_norm": step.cross_entropy(logits / (self.tau * lengths))}
