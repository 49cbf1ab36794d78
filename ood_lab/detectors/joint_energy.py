"""Joint energy: sum of the label-wise energies."""

from __future__ import annotations

from torch import Tensor

from ood_lab.detectors.base import Detector
from ood_lab.detectors.support.chunked_arithmetic import map_rows
from ood_lab.features.bank import FeatureBank


class JointEnergy(Detector):
    r"""Sum of the label-wise free energies of a multi-label head (arXiv 2109.14162).

    .. math:: s(x) = -\sum_c \log(1 + e^{z_c}), \quad z \in \mathbb{R}^C

    The logits z of C sigmoids do not exclude each other; each is a free energy of its own.
    Nothing is fitted and there is nothing to set.
    """

    name = "joint_energy"
    reads = ("logits", "level")
    multilabel = True
    formula = "−Σ_c log(1 + exp z_c)"
    source = "2109.14162"
    suspicious = "the label-wise energies are small together"

    def score(self, bank: FeatureBank) -> Tensor:
        """Negative joint energy, ``[N]``."""
        return map_rows(lambda z: -_energies(z).sum(dim=1), bank.logits)


def _energies(z: Tensor) -> Tensor:
    """log(1 + exp z) of any z; onnxruntime has no softplus of float64."""
    return z.clamp(min=0) + (-z.abs()).exp().log1p()
