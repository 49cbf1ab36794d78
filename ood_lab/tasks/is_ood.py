"""The IS-OOD evaluation: detectors over levels of shift that a CLIP has measured."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from ood_lab.common.arguments import Positive
from ood_lab.data.sources.level_tables import apply_levels
from ood_lab.evaluation.split_features import require_ood
from ood_lab.run.job.workspace import Workspace
from ood_lab.tasks.score import Score
from ood_lab.tasks.shift_levels import ShiftLevels


@dataclass(frozen=True, kw_only=True)
class IsOOD(ShiftLevels):
    """Divides the OOD images into measured levels, then scores every detector on every cell.

    ``backbone`` is scored, ``clip`` only measures. The cells are filters on rows of the same
    banks, so 64 cells cost no more passes than one.

    Args:
        memory_limit_gb: see :class:`~ood_lab.tasks.score.Score`.
    """

    memory_limit_gb: Positive | None

    def check(self, ws: Workspace) -> None:
        """Raises :class:`UserError` without OOD sets, and what the scoring raises."""
        require_ood(ws.data)
        self._score.check(ws)

    def run(self, ws: Workspace) -> pd.DataFrame | None:
        """Returns the results table of the measured levels; None on the other ranks."""
        pool = super().run(ws)
        if pool is not None:
            splits = ws.data.splits
            apply_levels({name: splits[name] for name in ws.data.ood_names}, pool, "this division")
        return self._score.run(ws)

    @property
    def _score(self) -> Score:
        return Score(memory_limit_gb=self.memory_limit_gb, report=self.report, keep_features=True)
