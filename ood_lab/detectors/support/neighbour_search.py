"""Search of a bank of fit images by products, in chunks, so that memory grows with neither side."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY

import torch
from torch import Tensor

from ood_lab.common.arguments import Count
from ood_lab.common.tensor_arithmetic import permutation
from ood_lab.detectors.base import DetectorRefusal, FittedDetector, with_settings
from ood_lab.detectors.support.compute_device import on_device
from ood_lab.features.bank import FeatureBank
from ood_lab.features.image_groups import group_count, unit_of
from ood_lab.neighbours import neighbour_count
from ood_lab.neighbours.matrix_precision import full_float32

#: Queries whose similarities are held at a time.
QUERIES = 1024
#: Norm below which a feature vector counts as zero and is not scaled to length 1.
SMALLEST_NORM = 1e-12


@with_settings
class CappedBankDetector(FittedDetector):
    """A detector whose scoring compares with a bank of fit images, all of them or a random part.

    Args:
        max_bank: keep that many fit images at most; None = all.
        seed: of the random choice.
    """

    _: KW_ONLY
    max_bank: Count | None = None
    seed: int = 0

    def _kept(self, n: int) -> int:
        """Images of n that are kept."""
        return n if self.max_bank is None else min(n, self.max_bank)

    def kept_rows(self, n: int) -> Tensor:
        """Random rows of n that are kept, sorted."""
        return permutation(n, self.seed)[: self._kept(n)].sort().values

    @abstractmethod
    def row_bytes(self, d: int, c: int) -> int:
        """Bytes that a kept image takes."""

    def fit_memory(self, n: int, d: int, c: int) -> int:
        """The bank that scoring searches."""
        return self.row_bytes(d, c) * self._kept(n)

    def less_memory(self, d: int, c: int, limit_bytes: int) -> str:
        """The largest ``max_bank`` within the limit."""
        return f"set detector.{self.name}.max_bank={limit_bytes // self.row_bytes(d, c)}"


class NeighbourDetector(CappedBankDetector):
    """One that compares with the k nearest images of the bank.

    Attributes:
        k: a number; or a rule, of which ``auto`` is
            :func:`~ood_lab.neighbours.neighbour_count`.
        largest_k: the authors' k, which ``auto`` does not exceed.
    """

    k: int | str
    largest_k: int

    def fixed_k(self, classes: int) -> int:
        """K for a head of so many classes; of ``auto``, the least that it can be."""
        return self.k if isinstance(self.k, int) else 1

    def check_size(self, n: int, c: int) -> None:
        """Raises :class:`DetectorRefusal` where the k-th neighbour is beyond the bank."""
        k, kept = self.fixed_k(c), self._kept(n)
        if k > kept:
            raise DetectorRefusal(
                f"{type(self).__name__}: k={k:,} exceeds the {kept:,} cached {self.fit_split} "
                f"images: set detector.{self.name}.k"
            )

    def chosen_k(self, bank: FeatureBank, rows: Tensor) -> int:
        """K for the kept ``rows`` of the fit images, of ``auto`` with the rule as ``chosen``."""
        if self.k != "auto":
            return self.fixed_k(bank.classes)
        n, present = group_count(bank, rows), bank.derived.classes_present
        k = neighbour_count(n, present, self.largest_k)
        unit = unit_of(bank)
        count = f"{n / present:,.0f} {unit}s per class" if present else f"{n:,} {unit}s"
        self.chosen = f"k = {k}, for {count}"
        return k


def chosen_rows(values: Tensor, rows: Tensor) -> Tensor:
    """``values[rows]``, or ``values`` itself, not a copy, where the rows are all of them."""
    return values if len(rows) == len(values) else values[rows]


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
