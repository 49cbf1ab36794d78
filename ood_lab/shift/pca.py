"""The PCA baseline: directions in which texts vary with the label, and with the template."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ood_lab.shift.laid import Decomposition
from ood_lab.shift.text_grid import FeatureGrid

#: Labels whose texts are summed at a time.
_LABELS = 256


def pca_decomposition(
    grid: FeatureGrid, clip: Mapping[str, str], variance: float = 0.9, k: int = 10
) -> Decomposition:
    r"""Two PCA projections of text features as a decomposition (IS-OOD, appendix B).

    With ``x_{at}`` the normalised feature of label a in template t: the semantic projection is the
    PCA of :math:`x_{at} - \bar x_{\cdot t}` (centred over labels within a template), the covariate
    one that of :math:`x_{at} - \bar x_{a \cdot}` (centred over templates within a label), each with
    the fewest components whose variance reaches ``variance`` of the whole. Uncentred features are
    projected, as with LAID. The paper does not say how it centres.

    Args:
        grid: text features.
        clip: identity of the CLIP.
        variance: share kept, in (0, 1].
        k: neighbour that shift degrees are measured to.
    """
    labels, templates, width = grid.shape
    of_template = torch.zeros(templates, width, dtype=torch.float64)
    square = torch.zeros(width, width, dtype=torch.float64)
    of_label = torch.zeros(width, width, dtype=torch.float64)
    for chunk in torch.arange(labels).split(_LABELS):
        texts = _texts(grid, chunk)
        of_template += texts.sum(0)
        square += _gram(texts.flatten(0, 1))
        of_label += templates * _gram(texts.mean(1))
    of_template /= labels
    semantic = _components(square - labels * _gram(of_template), variance)
    covariate = _components(square - of_label, variance)
    W = torch.cat([semantic, covariate], dim=1).float()
    details = {"variance": variance, "labels": labels, "templates": templates}
    return Decomposition("pca", W, semantic.shape[1], clip, k, details=details)


def _texts(grid: FeatureGrid, labels: Tensor) -> Tensor:
    """Features of some labels in all templates, ``[n, T, l] float64``."""
    templates = grid.shape[1]
    rows = labels.repeat_interleave(templates)
    columns = torch.arange(templates).repeat(len(labels))
    return grid.features(rows, columns).view(len(labels), templates, -1).double().cpu()


def _gram(rows: Tensor) -> Tensor:
    return rows.T @ rows


def _components(scatter: Tensor, share: float) -> Tensor:
    """Eigenvectors of the largest eigenvalues that add to ``share`` of the trace, ``[l, m]``."""
    values, vectors = torch.linalg.eigh(scatter)
    values, vectors = values.flip(0).clamp(min=0), vectors.flip(1)
    total = values.cumsum(0)
    # Rounding may leave the last sums a hair below the whole.
    kept = int((total < (share - 1e-12) * total[-1]).sum()) + 1
    return vectors[:, : min(kept, len(values))]
