"""Shift degrees: semantic and covariate shift of an image from the ID set."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ood_lab.neighbours import Groups, NeighbourSearch, Progress, check_k
from ood_lab.schema.shift_axes import AXES, Axis
from ood_lab.shift.laid import Decomposition


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
    memory is that of the parts of the ID set on the device that searches: ``4 M (s + c)`` bytes, of
    which ``resident=False`` keeps one part at a time, for few calls with many images each. 1.28
    million ID images at 256 + 256 take 2.6 or 1.3 GB.

    Several GPUs: queries do not know of each other, so give every process the whole ID set and
    ``features[rank::world_size]``, and put the results back at the same rows.

    Args:
        decomposition: the split.
        id_features: CLIP features of the ID images, ``[M, l]``.
        k: neighbour; the decomposition's by default.
        device: where to search; by default where ``id_features`` are.
        resident: keep both parts of the ID set; else every call makes each again, and
            ``id_features`` are kept.

    Raises:
        UserError: k below 1, or more than the ID images.
        ValueError: features that are not finite or have a part of length 0.
    """

    def __init__(
        self,
        decomposition: Decomposition,
        id_features: Tensor,
        k: int | None = None,
        device: torch.device | str | None = None,
        resident: bool = True,
    ) -> None:
        self.decomposition = decomposition
        self.k = decomposition.k if k is None else k
        check_k(self.k, len(id_features), "the ID set has")

        def search(axis: Axis) -> NeighbourSearch:
            return NeighbourSearch(self._part(id_features, axis, "ID images"), self.k, device)

        if resident:
            axes = AXES[:1] if decomposition.halves_are_equal else AXES
            kept = {axis: search(axis) for axis in axes}
            self._search_of: Callable[[Axis], NeighbourSearch] = kept.__getitem__
        else:
            self._search_of = search

    def __call__(
        self, features: Tensor, *, in_bank: bool = False, progress: Progress | None = None
    ) -> ShiftDegrees:
        """Degrees of images.

        Args:
            features: their CLIP features, ``[N, l]``.
            in_bank: these images are among the ID images, so that each one's match with itself
                does not count.
            progress: receives the share done, in [0, 1].
        """
        report = progress or (lambda share: None)

        def degrees(axis: Axis, report: Progress) -> Tensor:
            return self.on_axis(axis, features, in_bank=in_bank, progress=report)

        if self.decomposition.halves_are_equal:
            both = degrees("semantic", report)
            return ShiftDegrees(both, both)
        semantic = degrees("semantic", lambda share: report(share / 2))
        return ShiftDegrees(semantic, degrees("covariate", lambda share: report((1 + share) / 2)))

    def on_axis(
        self,
        axis: Axis,
        features: Tensor,
        *,
        in_bank: bool = False,
        classes: Groups | None = None,
        progress: Progress | None = None,
    ) -> Tensor:
        """Degrees on one axis, ``[N]``.

        Args:
            axis: ``semantic`` or ``covariate``.
            features: ``[N, l]``.
            in_bank: see :meth:`__call__`.
            classes: of these images ``[N]`` and of the ID images ``[M]``: the class of an image is
                left out of the ID images. 2 for an image with fewer than k others.
            progress: receives the share done, in [0, 1].
        """
        search = self._search_of("semantic" if self.decomposition.halves_are_equal else axis)
        queries = self._part(features, axis, "images")
        cosine = search.product(queries, in_bank=in_bank, groups=classes, progress=progress)
        return (1 - cosine).clamp(0, 2)

    def _part(self, features: Tensor, axis: Axis, of: str) -> Tensor:
        part = self.decomposition.part(features, axis)
        # A part has length 1, or 0: features that are all 0 are at distance 1 from every image.
        if bad := int((~part.isfinite().all(dim=1)).sum()):
            raise ValueError(f"{axis} part of the {of}: {bad} rows hold NaN or infinity")
        return part
