"""Search of a bank of fit images by products, in chunks, so that memory grows with neither side."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from ood_lab.common.tensor_arithmetic import permutation
from ood_lab.detectors.base import Detector, DetectorRefusal
from ood_lab.detectors.support.compute_device import on_device
from ood_lab.features.bank import FeatureBank
from ood_lab.features.image_groups import group_count, unit_of
from ood_lab.neighbours import neighbour_count, neighbours_in_words
from ood_lab.neighbours.matrix_precision import full_float32

#: Queries whose similarities are held at a time.
QUERIES = 1024
#: Norm below which a feature vector counts as zero and is not scaled to length 1.
SMALLEST_NORM = 1e-12


class CappedBankDetector(Detector):
    """A detector whose scoring compares with a bank of fit images, all of them or a random part.

    Attributes:
        max_bank: keep that many fit images at most; None = all.
    """

    max_bank: int | None

    def _kept(self, n: int) -> int:
        """Images of n that are kept."""
        return n if self.max_bank is None else min(n, self.max_bank)

    @abstractmethod
    def row_bytes(self, d: int, c: int) -> int:
        """Bytes that a kept image takes."""

    def fit_memory(self, n: int, d: int, c: int) -> int:
        """The bank that scoring searches."""
        return self.row_bytes(d, c) * self._kept(n)

    def memory_report(self, n: int, d: int, c: int, limit_bytes: int) -> tuple[str, str]:
        """The bank's size, and the largest ``max_bank`` within the limit."""
        remedy = f"set detector.{self.name}.max_bank={limit_bytes // self.row_bytes(d, c)}"
        return f"memory of {self._kept(n):,} images", remedy


def automatic_neighbours(detector: Detector, bank: FeatureBank, rows: Tensor, largest: int) -> int:
    """The k of ``rows`` by :func:`~ood_lab.neighbours.neighbour_count`; see ``chosen``."""
    n, present = group_count(bank, rows), bank.derived.classes_present
    k = neighbour_count(n, present, largest)
    detector.chosen = neighbours_in_words(k, n, present, unit_of(bank))
    return k


def choose_rows(n: int, seed: int, most: int | None) -> Tensor:
    """Random rows of n, ``most`` of them (None = all), sorted."""
    return permutation(n, seed)[:most].sort().values


def chosen_rows(values: Tensor, rows: Tensor) -> Tensor:
    """``values[rows]``, or ``values`` itself, not a copy, where the rows are all of them."""
    return values if len(rows) == len(values) else values[rows]


def check_neighbour(detector: Detector, k: int, bank: int) -> None:
    """Raises :class:`DetectorRefusal` where the k-th neighbour is beyond a bank of that size."""
    if k > bank:
        raise DetectorRefusal(
            f"{type(detector).__name__}: k={k:,} exceeds the {bank:,} cached "
            f"{detector.fit_split} images: set detector.{detector.name}.k"
        )


def unit(features: Tensor) -> Tensor:
    """Rows of length 1; a zero vector stays zero."""
    return torch.nn.functional.normalize(features, dim=1, eps=SMALLEST_NORM)


def inverse_norm(features: Tensor) -> Tensor:
    """1 / ‖x‖ of every row, ``[N]``; large and finite for a zero vector."""
    return 1 / torch.linalg.vector_norm(features, dim=1).clamp(min=SMALLEST_NORM)


def map_queries(function: Callable[..., Tensor], *queries: Tensor) -> Tensor:
    """``function`` of chunks ``[b, ...]`` of the queries, joined on the CPU: ``[N] float64``."""
    if torch.jit.is_tracing():  # see map_rows
        return function(*queries)
    scores = torch.empty(len(queries[0]), dtype=torch.float64)
    with full_float32():  # TF32 would round the similarities to three digits
        for start in range(0, len(scores), QUERIES):
            rows = slice(start, start + QUERIES)
            scores[rows] = function(*(on_device(part[rows]) for part in queries))
    return scores
