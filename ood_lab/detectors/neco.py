"""NECO: share of the feature within the principal subspace, times the maximum logit."""

from __future__ import annotations

from typing import Literal, Self

import torch
from torch import Tensor

from ood_lab.common.arguments import Count
from ood_lab.detectors.base import FittedDetector, with_settings
from ood_lab.detectors.support.chunked_arithmetic import map_rows
from ood_lab.detectors.support.requirements import require_finite
from ood_lab.features.bank import FeatureBank

#: Length below which a standardised feature counts as zero.
SMALLEST = 1e-12


@with_settings
class NECO(FittedDetector):
    r"""Neural collapse based detection (arXiv 2310.06823).

    .. math::
        t = \frac{x - \mu}{\sigma}, \qquad
        s(x) = -\frac{\|P^\top t\|_2}{\|t\|_2} \cdot \max_c z_c

    with mean μ and standard deviation σ of every feature over the fit split (a constant one keeps
    σ = 1) and P ``[D, dim]`` the top principal directions of the standardised features. Labels
    are not used. The paper tunes dim and finds it near C − 1, which ``auto`` takes. The authors'
    code omits the maximum logit for ResNets; see ``max_logit``.

    Args:
        dim: dimension of the principal subspace, or ``auto``; D at most.
        max_logit: multiply by the maximum logit.
        fit_split: images that μ, σ and P are estimated on.
    """

    moments = ("means", "within")
    needs_rows = False
    reads = ("features", "logits", "level")
    multilabel = True
    formula = "−‖top-dim principal part of t‖/‖t‖ · max z, t the standardised x"
    suspicious = "a small part of the features is in the principal directions"

    dim: Count | Literal["auto"] = "auto"
    max_logit: bool = True

    def fit(self, bank: FeatureBank) -> Self:
        """Learns ``mean [D]``, ``deviation [D]`` and ``principal [D, dim]``."""
        d, c = bank.width, bank.num_classes
        dim = min(d, max(1, c - 1) if self.dim == "auto" else self.dim)
        moments = self.statistics(bank)
        mean = moments.mean()
        moment = require_finite(self, moments.about(mean))
        variance = moment.diagonal()
        # Below this, a constant feature only varies by its rounding to float32.
        rounding = torch.finfo(torch.float32).eps ** 2 * mean.square()
        deviation = torch.where(variance > rounding, variance, 1).sqrt()
        vectors = torch.linalg.eigh(moment / torch.outer(deviation, deviation)).eigenvectors
        # eigh sorts upwards: the last columns are the most explained directions.
        principal = vectors[:, d - dim :].contiguous()
        self.fitted = {"mean": mean, "deviation": deviation, "principal": principal}
        self.used = {"dim": dim}
        return self

    def score(self, bank: FeatureBank) -> Tensor:
        """Negative share, times the maximum logit, ``[N]``."""
        mean, deviation, principal = self.fitted_tensors("mean", "deviation", "principal")

        def share(x: Tensor, z: Tensor) -> Tensor:
            standard = (x - mean) / deviation
            inside = (standard @ principal).norm(dim=1)
            ratio = inside / standard.norm(dim=1).clamp(min=SMALLEST)
            return ratio * z.amax(dim=1) if self.max_logit else ratio

        return -map_rows(share, bank.features, bank.logits)
