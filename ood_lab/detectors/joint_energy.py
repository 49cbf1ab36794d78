"""Joint energy: sum of the label-wise energies."""

from __future__ import annotations

from torch import Tensor

from ood_lab.detectors.support.logit_detector import LogitDetector


class JointEnergy(LogitDetector):
    r"""Sum of the label-wise free energies of a multi-label head (arXiv 2109.14162).

    .. math:: s(x) = -\sum_c \log(1 + e^{z_c}), \quad z \in \mathbb{R}^C

    The logits z of C sigmoids do not exclude each other; each is a free energy of its own.
    Nothing is fitted and there is nothing to set.
    """

    reads = ("logits", "level")
    multilabel = True
    formula = "−Σ_c log(1 + exp z_c)"
    suspicious = "the label-wise energies are small together"

    def of_logits(self, z: Tensor) -> Tensor:
        """Negative joint energy, ``[n]``."""
        energies = z.clamp(min=0) + (-z.abs()).exp().log1p()  # onnxruntime has no float64 softplus
        return -energies.sum(dim=1)
