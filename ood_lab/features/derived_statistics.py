"""What follows from the rows of a bank: each worked out once, when it is first asked for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from ood_lab.common.errors import UserError
from ood_lab.features.moments import FILE, Moments, from_file
from ood_lab.models.output import probabilities

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Name of the file of moments beside the shards of a bank.
MOMENTS = "moments.safetensors"
#: By which logits are told from logarithms of probabilities.
ROWS = 1024


class Derived:
    """Predictions, moments, the share of negative entries, and what detectors share, of some rows.

    Args:
        features: ``[N, D]``.
        logits: ``[N, C]``.
        labels: ``[N]``.
        file: where moments are kept; None = nowhere.
        of: identity of the rows, so that a file of others is not read.
        moments: of the rows, where they have been gathered.
    """

    def __init__(
        self,
        features: Tensor,
        logits: Tensor,
        labels: Tensor,
        file: Path | None = None,
        of: str = "",
        moments: Moments | None = None,
    ) -> None:
        self.rows = (features, logits, labels)
        self._file, self._of = file, of
        self._moments = moments
        self._known: dict[Hashable, Any] = {}

    def once(self, key: Hashable, work_out: Callable[[], T]) -> T:
        """What ``work_out`` gives; whoever asks for the same ``key`` later gets the same object."""
        if key not in self._known:
            self._known[key] = work_out()
        value: T = self._known[key]
        return value

    @cached_property
    def predictions(self) -> Tensor:
        """Predicted class, ``[N] int64``; -1 without logits."""
        logits = self.rows[1]
        return logits.argmax(dim=1) if logits.shape[1] else torch.full((len(logits),), -1)

    @cached_property
    def classes_present(self) -> int:
        """Classes that labels name; 0 without labels."""
        labels = self.rows[2]
        return len(labels[labels >= 0].unique())

    @cached_property
    def normalised(self) -> bool:
        """Whether the logits are logarithms of probabilities, as far as some rows tell."""
        return bool(len(self.rows[1])) and probabilities(self.rows[1][:ROWS]) is not None

    @cached_property
    def below_zero(self) -> float:
        """Share of the entries of the features that are below 0."""
        features = self.rows[0]
        parts = features.split(4096) if features.numel() else ()
        # The smallest entry is found thirty times faster than they are counted.
        return sum(int((x < 0).sum()) for x in parts if x.amin() < 0) / max(1, features.numel())

    def moments(self, parts: Collection[str], device: torch.device | str = "cpu") -> Moments:
        """The moments of all rows with these parts: those kept, or gathered on ``device`` now."""
        wanted = {"means", *parts}
        if self._moments is None:
            self._moments = self._read()
        if self._moments is None or not wanted <= self._moments.parts:
            features, logits, labels = self.rows
            self._moments = Moments(wanted | (self._moments.parts if self._moments else set()))
            self._moments.update(features, logits, labels, device)
            self._moments.gathered()
            self._keep(self._moments)
        return self._moments

    def _read(self) -> Moments | None:
        if self._file is None or not self._file.is_file():
            return None
        with suppress(UserError):
            description, sums = FILE.read(self._file)
            if moments := from_file(description, sums, self._of):
                return moments
        log.warning("'%s' is damaged or of other features: made again", self._file)
        return None

    def _keep(self, moments: Moments) -> None:
        if self._file is None:
            return
        try:
            FILE.write(self._file, moments.sums, moments.description(self._of))
        except UserError as error:
            log.warning("%s: the next run gathers it again", error)
