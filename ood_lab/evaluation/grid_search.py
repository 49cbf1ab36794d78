"""One detector under different settings, judged on the same images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ood_lab.detectors import Detector, checked_score
from ood_lab.errors import UserError
from ood_lab.evaluation.fitting import fit_within
from ood_lab.features.bank import FeatureBank
from ood_lab.metrics import SortedScores

Settings = dict[str, Any]


@dataclass(frozen=True)
class Candidate:
    """One point of a grid.

    Attributes:
        settings: as in the grid.
        used: what the detector made of them (a ViM dimension may be reduced).
        aurocs: by set of outliers.
    """

    settings: Settings
    used: Settings
    aurocs: dict[str, float]

    @property
    def auroc(self) -> float:
        """Mean over the sets of outliers."""
        return sum(self.aurocs.values()) / len(self.aurocs)

    def describe(self) -> dict[str, Any]:
        """Plain values for the manifest."""
        return {**self.used, "auroc": self.auroc, "auroc_by_set": self.aurocs}


@dataclass(frozen=True)
class GridSearch:
    """Fits and judges one detector under different settings.

    Attributes:
        name: of the detector.
        build: see :class:`Tuning`.
        fit: what it is fitted on; None = nothing.
        banks: ``val``, the ID images, then the sets of outliers.
        limit: bytes a fit may take.
    """

    name: str
    build: Callable[..., Detector]
    fit: FeatureBank | None
    banks: dict[str, FeatureBank]
    limit: int

    def run(self, settings: Settings, keys: Mapping[str, Any]) -> Candidate | str:
        """The AUROCs under ``settings``, or why these cannot work here."""
        detector = self.build(self.name, **settings)
        try:
            bank = self.banks["val"] if self.fit is None else self.fit
            fit_within(detector, bank, self.limit)
            scores = {s: checked_score(detector, b).numpy() for s, b in self.banks.items()}
        except UserError as error:
            return str(error)
        identity = scores.pop("val")
        aurocs = {s: SortedScores.of(identity, v).auroc() for s, v in scores.items()}
        described = settings | detector.describe()
        return Candidate(settings, {key: described[key] for key in keys}, aurocs)
