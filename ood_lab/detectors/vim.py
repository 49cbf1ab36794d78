"""ViM: virtual logit from the residual outside the principal subspace."""

from __future__ import annotations

from typing import Any, Literal, Self

import torch
from pytorch_ood.detector import EnergyBased
from torch import Tensor

from ood_lab.detectors.base import Detector, DetectorRefusal, FitSplit
from ood_lab.detectors.numeric import CHUNK_BYTES, map_rows, row_chunks
from ood_lab.detectors.requirements import check_count, require_finite
from ood_lab.features.bank import FeatureBank

#: Residual, as a share of the features' distance from the origin, that is only rounding.
RELATIVE_CUTOFF = 1e-7


class ViM(Detector):
    r"""Virtual-logit matching (arXiv 2203.10807).

    .. math::
        u = -W^+ b, \qquad
        s(x) = \alpha \|R^\top (x - u)\|_2 - \log \sum_c e^{z_c}, \qquad
        \alpha = \frac{\mathrm{mean} \max_c z_c}{\mathrm{mean} \|R^\top (x - u)\|_2}

    with R ``[D, D - dim]`` the eigenvectors of the fit split's E[(x - u)(x - u)^T] but the top
    ``dim``, and means over the fit split. Labels are not used. ``auto`` is the authors' dim:
    1000 from D = 2048, else 512. A dim of D or more leaves no residual: D // 2 is used then, and
    reported.

    Own: pytorch-ood and OpenOOD give NaN for dim = D (α = ∞), and both form the covariance of
    all rows at once in float32. Formula and the D // 2 rule are pytorch-ood's, as is the energy.

    Args:
        dim: dimension of the principal subspace, or ``auto``.
        fit_split: images that R and α are estimated on.
    """

    name = "vim"

    def __init__(self, dim: int | Literal["auto"] = "auto", fit_split: FitSplit = "train") -> None:
        super().__init__(fit_split)
        self.dim = dim
        if dim != "auto":
            check_count("vim.dim", dim)

    def fit_memory(self, n: int, d: int, c: int) -> int:
        """Covariance, eigenvectors, R and LAPACK's work space ``[D, D]``; W, W^+ ``[C, D]``."""
        return 8 * (6 * d * d + 4 * c * d) + 3 * CHUNK_BYTES

    def _resolve(self, d: int) -> int:
        dim = (1000 if d >= 2048 else 512) if self.dim == "auto" else self.dim
        return dim if dim < d else d // 2

    def fit(self, bank: FeatureBank) -> Self:
        """Learns ``origin [D]``, ``residual [D, D - dim]``, ``alpha`` and ``dim``."""
        n, d = bank.features.shape
        dim = self._resolve(d)
        origin = -torch.linalg.pinv(bank.head_weight.double()) @ bank.head_bias.double()
        covariance = torch.zeros(d, d, dtype=torch.float64)
        for rows in row_chunks(n, d):
            centred = bank.features[rows].double() - origin
            covariance.addmm_(centred.T, centred)
        _, vectors = torch.linalg.eigh(require_finite(self, covariance / n))
        # eigh sorts upwards: the first D - dim columns are the least explained directions.
        self.fitted = {
            "origin": origin,
            "residual": vectors[:, : d - dim].contiguous(),
            "dim": torch.tensor(dim),
        }
        norm = self._residual_norm(bank.features).mean()
        spread = covariance.trace().div(n).sqrt()
        if norm <= RELATIVE_CUTOFF * spread:
            raise DetectorRefusal(
                f"ViM: the {self.fit_split} features leave no residual outside {dim} of {d} "
                f"dimensions: set detector.{self.name}.dim lower"
            )
        self.fitted["alpha"] = map_rows(lambda z: z.amax(dim=1), bank.logits).mean() / norm
        return self

    def _residual_norm(self, features: Tensor) -> Tensor:
        origin, residual = self.fitted["origin"], self.fitted["residual"]
        return map_rows(lambda x: ((x - origin) @ residual).norm(dim=1), features)

    def score(self, bank: FeatureBank) -> Tensor:
        """Virtual logit minus log-sum-exp of the logits, ``[N]``."""
        virtual = self.fitted["alpha"] * self._residual_norm(bank.features)
        return virtual + map_rows(EnergyBased.score, bank.logits)

    def describe(self) -> dict[str, Any]:
        """Dimension as asked (``dim_asked``) and as used (``dim``), α, fit split."""
        used = {key: self.fitted[key].item() for key in ("dim", "alpha") if self.fitted}
        return {"dim": self.dim, "dim_asked": self.dim, "fit_split": self.fit_split} | used
