"""Two halves of a CLIP feature: what is shown, and how it looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath
from ood_lab.common.grouping import with_keys, without_keys
from ood_lab.common.tensor_file import TensorFile
from ood_lab.neighbours import Groups, NeighbourSearch
from ood_lab.schema.image_columns import AXES, Axis
from ood_lab.schema.run_record import Facts
from ood_lab.shift.text_grid import FeatureGrid

#: Rows that are split at a time, so that memory holds little besides the result.
_ROWS = 65_536


@dataclass(frozen=True)
class Decomposition:
    r"""A linear split of CLIP features into a semantic and a covariate part.

    .. math::
        g = f W, \qquad f_{sem} = g_{:s} / |g_{:s}|, \qquad f_{cov} = g_{s:} / |g_{s:}|

    with row vectors f. LAID (IS-OOD) learns an orthogonal ``W [l, l]`` and takes ``s = l / 2``. Its
    baselines have the same form: two PCA projections side by side
    (:func:`ood_lab.shift.laid.pca_decomposition`) and the whole feature twice
    (:func:`undecomposed`).

    Attributes:
        name: ``laid``, ``pca`` or ``clip``.
        W: ``[l, s + c] float32``.
        semantic_width: s.
        clip: identity of the CLIP whose features it splits (``ClipModel.identity``).
        k: neighbour that shift degrees are measured to.
        details: how it was made, plain values.
    """

    name: str
    W: Tensor
    semantic_width: int
    clip: Mapping[str, str]
    k: int = 10
    details: Facts = field(default_factory=dict)

    def part(self, features: Tensor, axis: Axis) -> Tensor:
        """One part of features, normalised, ``[N, s]`` or ``[N, c]`` float32; in chunks of rows.

        The length of a feature does not matter. A part of length 0 stays 0.

        Args:
            features: ``[N, l]``, any float type; not centred (centring by the ID mean ruins the
                covariate part).
            axis: ``semantic`` or ``covariate``.
        """
        s = self.semantic_width
        W = self.W.to(features.device)[:, slice(s) if axis == "semantic" else slice(s, None)]
        projected = torch.empty(len(features), W.shape[1], device=features.device)
        for start in range(0, len(features), _ROWS):
            chunk = slice(start, start + _ROWS)
            projected[chunk] = F.normalize(features[chunk].float() @ W, dim=1)
        return projected


def energy_shares(W: Tensor, semantic_width: int, features: Tensor) -> tuple[float, float]:
    """Mean ``|g_sem|^2 / |f|^2`` and ``|g_cov|^2 / |f|^2`` of features ``[N, l]``.

    They add to 1 if W is orthogonal.
    """
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


FILE = TensorFile(
    kind="decomposition",
    key="ood_lab_decomposition",
    format=1,
    source="model=laid",
    remedy="train it again with model=laid",
)


def save_decomposition(path: StrPath, decomposition: Decomposition) -> None:
    """Writes a safetensors file with ``W [l, s + c] float32``, whole or not at all.

    The metadata hold one JSON text with the name, the CLIP's identity, k and details.

    Raises:
        UserError: the file cannot be written.
    """
    description = without_keys(vars(decomposition), ("W",))
    FILE.write(Path(path), {"W": decomposition.W.float().cpu()}, description)


def load_decomposition(path: StrPath, clip: Mapping[str, str]) -> Decomposition:
    """Reads a file of :func:`save_decomposition`.

    Args:
        path: the file.
        clip: identity of the CLIP whose features will be split; the file must be made for it.

    Raises:
        UserError: no such file, another kind of file, a damaged one, or one of another CLIP.
    """
    place = Path(path)
    description, tensors = FILE.read(place)
    with FILE.whole(place):
        kept = with_keys(description, Decomposition.__dataclass_fields__)
        decomposition = Decomposition(**kept, W=tensors["W"])
    made_for = decomposition.clip
    # The same weights may have been loaded by another name: from a file, or by their tag.
    if made_for["weights_sha256"] != clip["weights_sha256"]:
        raise UserError(
            f"decomposition '{place}' was made for the CLIP '{made_for['name']}' (weights "
            f"{made_for['weights_sha256'][:12]}), this run uses '{clip['name']}' (weights "
            f"{clip['weights_sha256'][:12]}): train it again with model=laid and this clip"
        )
    return decomposition


#: Labels whose texts are summed at a time, and the share of the variance that PCA keeps.
_LABELS, _VARIANCE = 256, 0.9


def pca_decomposition(grid: FeatureGrid, clip: Mapping[str, str], k: int = 10) -> Decomposition:
    r"""Two PCA projections of text features as a decomposition (IS-OOD, appendix B).

    With ``x_{at}`` the normalised feature of label a in template t: the semantic projection is the
    PCA of :math:`x_{at} - \bar x_{\cdot t}` (centred over labels within a template), the covariate
    one that of :math:`x_{at} - \bar x_{a \cdot}` (centred over templates within a label), each with
    the fewest components whose variance reaches 90% of the whole. Uncentred features are
    projected, as with LAID. The paper does not say how it centres.

    Args:
        grid: text features.
        clip: identity of the CLIP.
        k: neighbour that shift degrees are measured to.
    """
    labels, templates, width = grid.table.shape
    of_template = torch.zeros(templates, width, dtype=torch.float64)
    square = torch.zeros(width, width, dtype=torch.float64)
    of_label = torch.zeros(width, width, dtype=torch.float64)
    for chunk in torch.arange(labels).split(_LABELS):
        texts = grid.features(chunk, slice(None)).double()
        of_template += texts.sum(0)
        square += _gram(texts.flatten(0, 1))
        of_label += templates * _gram(texts.mean(1))
    of_template /= labels
    semantic = _components(square - labels * _gram(of_template))
    covariate = _components(square - of_label)
    W = torch.cat([semantic, covariate], dim=1).float()
    details = {"variance": _VARIANCE, "labels": labels, "templates": templates}
    return Decomposition("pca", W, semantic.shape[1], clip, k, details=details)


def _gram(rows: Tensor) -> Tensor:
    return rows.T @ rows


def _components(scatter: Tensor) -> Tensor:
    """Eigenvectors of the largest eigenvalues that add to 90% of the trace, ``[l, m]``."""
    values, vectors = torch.linalg.eigh(scatter)
    values, vectors = values.flip(0).clamp(min=0), vectors.flip(1)
    total = values.cumsum(0)
    kept = int((total < (_VARIANCE - 1e-12) * total[-1]).sum()) + 1
    return vectors[:, :kept]


class ShiftDegrees(NamedTuple):
    """Shift degrees of N images, ``[N] float32`` each in [0, 2], on the CPU."""

    semantic: Tensor
    covariate: Tensor


class ShiftMeter:
    """Measures shift degrees to one ID set (IS-OOD, section 3).

    ``D_sem(x)`` is the k-th smallest cosine distance of the semantic part of x to those of all ID
    images, ``D_cov`` that of the covariate part, independently. The paper defines k = 1 and uses
    10 against noise.

    Exact, in float32, and chunked in queries and bank. Beyond the queries and a few hundred MB,
    memory is that of the parts of the ID set on the device that searches, each from its first use:
    ``4 M (s + c)`` bytes. 1.28 million ID images at 256 + 256 take 2.6 GB, one part 1.3 GB.

    Several GPUs: queries do not know of each other, so give every process the whole ID set and
    ``features[rank::world_size]``, and put the results back at the same rows.

    Args:
        decomposition: the split.
        id_features: CLIP features of the ID images, ``[M, l]``.
        k: neighbour; the decomposition's by default.
        device: where to search; by default where ``id_features`` are.
    """

    def __init__(
        self,
        decomposition: Decomposition,
        id_features: Tensor,
        k: int | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        self.decomposition = decomposition
        self.k = decomposition.k if k is None else k

        @cache
        def search(axis: Axis) -> NeighbourSearch:
            return NeighbourSearch(self._part(id_features, axis, "ID images"), self.k, device)

        self._search_of = search

    def __call__(self, features: Tensor) -> ShiftDegrees:
        """Degrees of images from their CLIP features ``[N, l]``, see :meth:`on_axis`."""
        return ShiftDegrees(*(self.on_axis(axis, features) for axis in AXES))

    def on_axis(self, axis: Axis, features: Tensor, *, classes: Groups | None = None) -> Tensor:
        """Degrees on one axis, ``[N]``.

        Args:
            axis: ``semantic`` or ``covariate``.
            features: ``[N, l]``.
            classes: of these images ``[N]`` and of the ID images ``[M]``: the class of an image is
                left out of the ID images. 2 for an image with fewer than k others.

        Raises:
            UserError: k below 1, or more than the ID images.
            ValueError: features that are not finite.
        """
        queries = self._part(features, axis, "images")
        cosine = self._search_of(axis).product(queries, groups=classes)
        return (1 - cosine).clamp(0, 2)

    def _part(self, features: Tensor, axis: Axis, of: str) -> Tensor:
        part = self.decomposition.part(features, axis)
        # A part has length 1, or 0: features that are all 0 are at distance 1 from every image.
        if bad := int((~part.isfinite().all(dim=1)).sum()):
            raise ValueError(f"{axis} part of the {of}: {bad} rows hold NaN or infinity")
        return part
