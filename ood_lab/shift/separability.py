"""Separability of sets from ID in the space of a backbone's features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import pandas as pd
import torch
from torch import Tensor

from ood_lab.common.tensor_file import Tensors

#: Whose features the principal components are of.
Axes = Literal["id", "all"]
#: Share of the mean variance added to every variance, so that a flat set keeps a volume.
_RIDGE = 1e-3


@dataclass(frozen=True)
class Projection:
    """Principal components of features.

    Attributes:
        mean: ``[D] float64``.
        components: orthonormal columns, the largest variance first, ``[D, m] float64``.
        variance_share: of each component in the features' variance, ``[m]``.
    """

    mean: Tensor
    components: Tensor
    variance_share: Tensor

    def __call__(self, features: Tensor) -> Tensor:
        """Coordinates of features, ``[N, D] -> [N, m] float64``."""
        return (features.double() - self.mean) @ self.components


class SetSeparability(NamedTuple):
    """The findings of :func:`separability`.

    Attributes:
        table: one row per set, nearest first: ``dataset, n, components, bhattacharyya, mean_term,
            covariance_term``.
        projection: the first components, for a figure.
        points: name -> coordinates ``[n, 2] float64``; ``id`` first.
    """

    table: pd.DataFrame
    projection: Projection
    points: Tensors


def fit_projection(features: Tensor, components: int) -> Projection:
    """PCA of features ``[N, D]``; at most ``min(components, D, N - 1)`` components."""
    values = features.double()
    mean = values.mean(dim=0)
    centred = values - mean
    eigenvalues, vectors = torch.linalg.eigh(centred.T @ centred / max(len(values) - 1, 1))
    kept = max(1, min(components, values.shape[1], len(values) - 1))
    largest = eigenvalues.flip(0).clamp(min=0)
    return Projection(mean, vectors.flip(1)[:, :kept], (largest / largest.sum())[:kept])


def bhattacharyya(a: Tensor, b: Tensor, ridge: float = _RIDGE) -> tuple[float, float]:
    r"""The two terms of the Bhattacharyya distance of two samples taken as Gaussians.

    .. math::
        D_B = \tfrac18 (\mu_a - \mu_b)^T \Sigma^{-1} (\mu_a - \mu_b)
              + \tfrac12 \ln \frac{|\Sigma|}{\sqrt{|\Sigma_a| |\Sigma_b|}}, \qquad
        \Sigma = (\Sigma_a + \Sigma_b) / 2

    (Kailath 1967), with :math:`\Sigma_a + \rho I` for :math:`\Sigma_a` and likewise for b, where
    :math:`\rho` is ``ridge`` times the mean variance of both.

    Args:
        a: ``[n, D]``, n at least 2.
        b: ``[m, D]``.
        ridge: share of the mean variance added to each variance.

    Returns:
        Mean term and covariance term; their sum is the distance.

    Raises:
        ValueError: no variance at all.
    """
    covariances = [torch.cov(x.double().T).reshape(x.shape[1], x.shape[1]) for x in (a, b)]
    floor = ridge * float(sum(c.diagonal().mean() for c in covariances)) / 2
    if floor <= 0:
        raise ValueError(
            "Bhattacharyya distance: the samples do not vary, or ridge is not positive"
        )
    identity = torch.eye(a.shape[1], dtype=torch.float64, device=a.device)
    of_a, of_b = (covariance + floor * identity for covariance in covariances)
    both = (of_a + of_b) / 2
    gap = a.double().mean(0) - b.double().mean(0)
    mean_term = gap @ torch.linalg.solve(both, gap) / 8
    volumes = [torch.linalg.slogdet(c).logabsdet for c in (both, of_a, of_b)]
    covariance_term = (volumes[0] - (volumes[1] + volumes[2]) / 2) / 2
    return float(mean_term), float(covariance_term)


def separability(
    id_features: Tensor,
    sets: Mapping[str, Tensor],
    components: int = 32,
    axes: Axes = "id",
) -> SetSeparability:
    """Bhattacharyya distance of every set to ID on principal components of the features.

    The view of ShiftedBronzes on two backbones' spaces. The number of components is the same for
    all sets, since the distance grows with it: at most a fifth of the smallest set, so that
    covariances can be estimated.

    Args:
        id_features: ``[N, D]``.
        sets: name -> ``[n, D]``; at least 2 images each.
        components: principal components at most.
        axes: features that the components are of: those of ID, or of ID and all sets together.

    Raises:
        ValueError: features that do not vary.
    """
    smallest = min(len(features) for features in (id_features, *sets.values()))
    kept = max(2, min(components, smallest // 5))
    features = {"id": id_features, **sets}
    fitted = id_features if axes == "id" else torch.cat(list(features.values()))
    projection = fit_projection(fitted, kept)
    points = {name: projection(rows) for name, rows in features.items()}
    rows = []
    for name in sets:
        mean_term, covariance_term = bhattacharyya(points["id"], points[name])
        rows.append((name, len(points[name]), points[name].shape[1], mean_term, covariance_term))
    columns = ["dataset", "n", "components", "mean_term", "covariance_term"]
    table = pd.DataFrame(rows, columns=columns)
    table.insert(3, "bhattacharyya", table["mean_term"] + table["covariance_term"])
    table = table.sort_values("bhattacharyya", ignore_index=True)
    return SetSeparability(table, projection, {name: p[:, :2] for name, p in points.items()})
