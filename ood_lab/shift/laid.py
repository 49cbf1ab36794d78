"""Two halves of a CLIP feature: what is shown, and how it looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ood_lab.schema.shift_axes import Axis
from ood_lab.shift.level_edges import Edges

#: Rows that are split at a time, so that memory holds little besides the result.
_ROWS = 65_536


class Halves(NamedTuple):
    """Normalised semantic and covariate part of N features, ``[N, s]`` and ``[N, c]`` float32."""

    semantic: Tensor
    covariate: Tensor


@dataclass(frozen=True)
class Decomposition:
    r"""A linear split of CLIP features into a semantic and a covariate part.

    .. math::
        g = f W, \qquad f_{sem} = g_{:s} / |g_{:s}|, \qquad f_{cov} = g_{s:} / |g_{s:}|

    with row vectors f. LAID (IS-OOD) learns an orthogonal ``W [l, l]`` and takes ``s = l / 2``. Its
    baselines have the same form: two PCA projections side by side
    (:func:`ood_lab.shift.pca.pca_decomposition`) and the whole feature twice
    (:func:`undecomposed`).

    Attributes:
        name: ``laid``, ``pca`` or ``clip``.
        W: ``[l, s + c] float32``.
        semantic_width: s.
        clip: identity of the CLIP whose features it splits (``ClipModel.identity``).
        k: neighbour that shift degrees are measured to.
        edges: level edges measured with it, where there are any.
        details: how it was made, plain values.
    """

    name: str
    W: Tensor
    semantic_width: int
    clip: Mapping[str, str]
    k: int = 10
    edges: Edges | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.W.ndim != 2 or not 0 < self.semantic_width < self.W.shape[1]:
            raise ValueError(
                f"W {tuple(self.W.shape)} cannot be split after column {self.semantic_width}"
            )

    @property
    def width(self) -> int:
        """Width l of the features it takes."""
        return self.W.shape[0]

    @property
    def halves_are_equal(self) -> bool:
        """Both parts are the same projection, so that one search serves both."""
        semantic, covariate = self.W.tensor_split([self.semantic_width], dim=1)
        return torch.equal(semantic, covariate)

    def split(self, features: Tensor) -> Halves:
        """Both parts of features, see :meth:`part`."""
        return Halves(self.part(features, "semantic"), self.part(features, "covariate"))

    def part(self, features: Tensor, axis: Axis) -> Tensor:
        """One part of features, normalised, ``[N, s]`` or ``[N, c]`` float32; in chunks of rows.

        The length of a feature does not matter. A part of length 0 stays 0.

        Args:
            features: ``[N, l]``, any float type; not centred (centring by the ID mean ruins the
                covariate part).
            axis: ``semantic`` or ``covariate``.

        Raises:
            ValueError: features of another width.
        """
        if features.ndim != 2 or features.shape[1] != self.width:
            raise ValueError(f"features: expected [N, {self.width}], got {tuple(features.shape)}")
        W = self.W.to(features.device)[:, self._columns(axis)]
        projected = torch.empty(len(features), W.shape[1], device=features.device)
        for start in range(0, len(features), _ROWS):
            chunk = slice(start, start + _ROWS)
            projected[chunk] = F.normalize(features[chunk].float() @ W, dim=1)
        return projected

    def _columns(self, axis: Axis) -> slice:
        s = self.semantic_width
        return slice(s) if axis == "semantic" else slice(s, None)

    def energy_shares(self, features: Tensor) -> tuple[float, float]:
        """Mean ``|g_sem|^2 / |f|^2`` and ``|g_cov|^2 / |f|^2``; they add to 1 if W is orthogonal.

        Args:
            features: ``[N, l]``.
        """
        return energy_shares(self.W.to(features.device), self.semantic_width, features)


def energy_shares(W: Tensor, semantic_width: int, features: Tensor) -> tuple[float, float]:
    """See :meth:`Decomposition.energy_shares`."""
    energy = (F.normalize(features.float(), dim=-1) @ W).square()
    return (
        energy[..., :semantic_width].sum(-1).mean().item(),
        energy[..., semantic_width:].sum(-1).mean().item(),
    )


def polar_factor(W: Tensor) -> Tensor:
    """The nearest orthogonal matrix ``U V^T`` of ``W = U S V^T``, computed in float64."""
    U, _, Vh = torch.linalg.svd(W.double())
    return (U @ Vh).to(W.dtype)


def undecomposed(width: int, clip: Mapping[str, str], k: int = 10) -> Decomposition:
    """The baseline that does not split: both parts are the whole feature of ``width`` l."""
    identity = torch.eye(width)
    return Decomposition("clip", torch.cat([identity, identity], dim=1), width, clip, k)
