"""KNN: distance to the k-th nearest fit image."""

from __future__ import annotations

from typing import Literal, Self

import torch
from torch import Tensor

from ood_lab.common.arguments import Count
from ood_lab.common.tensor_arithmetic import squared_norms
from ood_lab.detectors.base import with_settings
from ood_lab.detectors.support.compute_device import compute_device
from ood_lab.detectors.support.neighbour_search import (
    SMALLEST_NORM,
    NeighbourDetector,
    chosen_rows,
    unit,
)
from ood_lab.detectors.support.requirements import require_finite
from ood_lab.features.bank import FeatureBank
from ood_lab.neighbours import NeighbourSearch, Rows

#: Queries that are normalised at a time.
QUERIES = 8192


@with_settings
class KNN(NeighbourDetector):
    r"""Distance to the k-th nearest neighbour among normalised fit features (arXiv 2204.06507).

    .. math::
        s(x) = \|\hat x - \hat x_{(k)}\|_2 = \sqrt{2 - 2 \cos(x, x_{(k)})}, \qquad
        \hat x = x / \max(\|x\|_2, 10^{-12})

    exact over the whole bank ``[M, D]`` (a zero vector stays zero, at distance 1 of any other).
    Labels only tell how many images, or groups of images, a class has: ``auto`` is a tenth of them,
    at most OpenOOD's 50 (:func:`~ood_lab.neighbours.neighbour_count`). ``authors`` is 50 up to 10
    classes, 200 up to 100, else 1000.

    Own: pytorch-ood's score is the same, but scikit-learn behind it holds a second, normalised
    bank. Here the bank is the feature bank itself plus two numbers per row, and
    :class:`ood_lab.neighbours.NeighbourSearch` reads it in blocks, so that memory does not grow
    with it. Only the distance to the k-th neighbour is used, so ties need no order. Products are
    float32 and so is the resolution near 0: about 3e-4.

    Args:
        k: neighbour, ``auto`` or ``authors``.
        max_bank: keep that many random fit images at most; None = all.
        seed: of the random choice.
        fit_split: images in the bank.
    """

    formula = "distance of x̂ to its k-th nearest"
    neighbours = True
    largest_k = 50
    suspicious = "the features are far from the k-th nearest training image"

    k: Count | Literal["auto", "authors"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._prepared: tuple[Tensor, NeighbourSearch] | None = None

    def fixed_k(self, classes: int) -> int:
        """See the base class."""
        if self.k != "authors":
            return super().fixed_k(classes)
        return 50 if classes <= 10 else 200 if classes <= 100 else 1000

    def row_bytes(self, d: int, c: int) -> int:
        """``[D] float32`` with two numbers."""
        return 4 * (d + 2)

    def fit(self, bank: FeatureBank) -> Self:
        """Learns ``bank [M, D]``, ``k``, ``inverse_norm [M]`` and ``half_square [M]``.

        ``bank`` is the feature tensor itself, not a copy, unless fewer rows are kept;
        ``half_square`` is half the squared length after scaling (1/2, or 0 for a zero vector).
        """
        self.check_size(len(bank), bank.classes)
        rows = self.kept_rows(len(bank))
        features, k = chosen_rows(bank.features, rows), self.chosen_k(bank, rows)
        norm = require_finite(self, torch.linalg.vector_norm(features, dim=1))
        inverse = 1 / norm.clamp(min=SMALLEST_NORM)
        self.fitted = {
            "bank": features,
            "inverse_norm": inverse,
            "half_square": (norm * inverse).square() / 2,
            "k": torch.tensor(k),
        }
        self.used = {"k": k, "bank": len(features)}
        return self

    def score(self, bank: FeatureBank) -> Tensor:
        """Distance to the k-th neighbour, ``[N]`` in [0, 2]."""
        search = self._search()
        if torch.jit.is_tracing():  # see map_rows
            return _distance(bank.features, search)
        parts = [_distance(queries, search) for queries in bank.features.split(QUERIES)]
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.float64)

    def _search(self) -> NeighbourSearch:
        """The search of the fitted bank, prepared once for all scored banks."""
        bank, k, device = self.fitted["bank"], int(self.fitted["k"]), compute_device()
        if self._prepared is not None:
            of, search = self._prepared
            if of is bank and search.k == k and search.device == device:
                return search
        # The nearest has the largest q.b - |b|^2 / 2.
        rows = Rows(bank, self.fitted["inverse_norm"], -self.fitted["half_square"])
        search = NeighbourSearch(rows, k, device)
        self._prepared = bank, search
        return search


def _distance(queries: Tensor, search: NeighbourSearch) -> Tensor:
    queries = unit(queries)
    length, product = squared_norms(queries.double()), search.product(queries).double()
    return (length - 2 * product).clamp(min=0).sqrt()
