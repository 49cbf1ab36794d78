"""Images of one thing among others: groups far tighter than what separates them."""

from __future__ import annotations

import numpy as np
import scipy  # loads its parts when they are used
import torch
from numpy.typing import NDArray
from torch import Tensor

from ood_lab.common.tensor_arithmetic import all_finite, squared_norms
from ood_lab.schema.arrays import Floats, Ints

#: Of more images near copies are not looked for: all pairs are compared.
MOST_IMAGES = 5_000
#: The share of groups that are none; where there is none, the probability of any.
_ALPHA = 0.01
#: A larger share of the images, or so many times the mean group, is a kind of image, no scene.
_SHARE, _TIMES_MEAN = 0.125, 16
#: Neighbours whose distances show the dimension, and its lower bound.
_NEIGHBOURS, _BOUND = (1, 2, 4, 8, 16), 0.05
#: Above all distances between vectors of length 1, and at most rounding.
_APART, _TINY = 4.0, 1e-6
_TURNS = 6


def near_copies(features: Tensor, labels: Tensor | None = None) -> Tensor:
    r"""Groups of images whose distances are far below those to all other images.

    A candidate is a node of the single-linkage tree of the features of length 1. Its last merge is
    at distance h, its merge with others at H. Where images lie at random in m dimensions, the
    ratio of the distances to successive neighbours has ``P(h / H <= r) = r^m`` (TwoNN, Facco et al.
    2017, arXiv 1803.06992), whatever the density. So :math:`p = (h / H)^m` is the p-value of a node
    among N - 1, and a group is a node

    - with p ≤ 0.01 / N, the outermost of nested ones;
    - or one that Benjamini and Hochberg's rule takes at 0.01, without such a node inside.

    m is the lower 95% bound of
    :math:`S (1/k + ... + 1/(2k - 1)) / \sum_i \log(d_{i,2k} / d_{i,k})` from one image of each of S
    groups, in turns with the groups; the largest of k = 1, 2, 4, 8 and 16. Twice as many neighbours
    reach beyond the scene, and to another one. A node of more than an eighth of the images, or of
    16 times the mean group, is a kind of image, and nothing in it is grouped.

    Measured on EfficientNet-lite0, three draws (``tests/benchmarks/near_copies.py``): 45 dogs with
    2, 4 or 8 crops of 94% or two bursts are 45 groups, with two crops of 70% 50 to 52, and no group
    has two dogs. 1,000 photographs, and solar and blood cells of one kind (80 to 150), have none;
    nor have 5,000 images of CIFAR-10 on a ResNet-20.

    Args:
        features: ``[N, D]``.
        labels: ``[N]``, classes that no group crosses; None = one class.

    Returns:
        ``[N] int64``, the first row of the group of each row. Each row is its own group of fewer
        than 4 or more than :data:`MOST_IMAGES` images, and where a feature is not finite.
    """
    n = len(features)
    groups = np.arange(n)
    if not 4 <= n <= MOST_IMAGES or not features.numel() or not all_finite(features):
        return torch.from_numpy(groups)
    distances = _unit_distances(features, labels)
    pairs = scipy.spatial.distance.squareform(distances, checks=False)
    tree = scipy.cluster.hierarchy.linkage(pairs, "single")
    outside = np.full(2 * n - 1, _APART)
    outside[tree[:, :2].astype(int)] = tree[:, 2:3]
    # A whole class has no other image to be compared with.
    near = outside[n:] < _APART
    ratios = np.where(near, tree[:, 2] / np.maximum(outside[n:], _TINY), 1.0)
    for _ in range(_TURNS):
        p = ratios ** _dimension(distances, np.unique(groups))
        certain = p <= _ALPHA / n
        likely = scipy.stats.false_discovery_control(p) <= _ALPHA
        statistics = np.repeat(certain[:, None].astype(float), 4, axis=1)
        around_certain = scipy.cluster.hierarchy.maxRstat(tree, statistics, 0) > 0
        chosen = certain | (likely & ~around_certain)
        previous, groups = groups, _outermost_nodes(tree, chosen.astype(int))
        if (groups == previous).all():
            break
    mean = n / len(np.unique(groups))
    largest = min(max(2.0, _SHARE * n), _TIMES_MEAN * mean)
    marks = np.where(tree[:, 3] > largest, 2, 1) * chosen
    return torch.from_numpy(_outermost_nodes(tree, marks))


def _unit_distances(features: Tensor, labels: Tensor | None) -> Floats:
    """Of vectors of length 1, ``[N, N]``; :data:`_APART` of two classes."""
    unit = torch.nn.functional.normalize(features.double().cpu(), dim=1)
    squares = squared_norms(unit)
    distances = (squares[:, None] + squares - 2 * unit @ unit.T).clamp_(min=0).sqrt_()
    if labels is not None:
        distances[labels[:, None] != labels] = _APART
    return distances.fill_diagonal_(0).numpy()


def _dimension(distances: Floats, rows: Ints) -> float:
    """The dimension m that some rows show."""
    between = distances[np.ix_(rows, rows)]
    np.fill_diagonal(between, _APART)
    dimensions = [0.0]
    for k in [k for k in _NEIGHBOURS if 4 * k <= len(rows)]:
        near, far = np.partition(between, (k - 1, 2 * k - 1), 1)[:, [k - 1, 2 * k - 1]].T
        seen = (far > _TINY) & (far < _APART)
        steps = np.log(far[seen] / np.maximum(near[seen], _TINY)).sum()
        bound = scipy.stats.chi2.ppf(_BOUND, 2 * seen.sum()) / 2 if seen.any() else 0.0
        dimensions.append((1 / np.arange(k, 2 * k)).sum() * bound / max(steps, _TINY))
    return float(max(dimensions))


def _outermost_nodes(tree: Floats, marks: NDArray[np.integer]) -> Ints:
    """First row of the outermost node of each row with mark 1 that no mark 2 contains."""
    n = len(tree) + 1
    first = np.arange(2 * n - 1)
    for node, children in enumerate(tree[:, :2].astype(int), n):
        first[node] = first[children].min()
    below = np.concatenate([np.zeros(n, int), marks])
    for node in range(2 * n - 2, n - 1, -1):
        children = tree[node - n, :2].astype(int)
        if below[node]:
            below[children] = below[node]
        if below[node] == 1:
            first[children] = first[node]
    return first[:n]
