"""The IS-OOD evaluation: detectors over levels of shift that a CLIP has measured."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd

from ood_lab.data.sources.level_tables import apply_levels
from ood_lab.evaluation.split_features import require_ood
from ood_lab.run.job.workspace import Workspace
from ood_lab.tasks.score import evaluate_run, pass_images, sets_to_evaluate
from ood_lab.tasks.shift_levels import ShiftLevels


@dataclass(frozen=True, kw_only=True)
class IsOOD(ShiftLevels):
    """Divides the OOD images into measured levels, then scores every detector on every cell.

    ``backbone`` is scored, ``clip`` only measures. The cells are filters on rows of the same
    banks, so 64 cells cost no more passes than one.
    """

    def check(self, ws: Workspace) -> None:
        """Raises :class:`UserError` without OOD sets, and what the scoring raises."""
        require_ood(ws.data)
        sets_to_evaluate(ws)

    def run(self, ws: Workspace) -> pd.DataFrame | None:
        """Returns the results table of the measured levels; None on the other ranks."""
        shift = None
        if divided := self.divided(ws):
            measured, pool = divided
            shift, splits = measured.results, ws.data.splits
            apply_levels({name: splits[name] for name in ws.data.ood_names}, pool, "this division")
        inputs = replace(pass_images(ws), shift=shift)
        return evaluate_run(ws, inputs, report=self.report) if ws.is_main else None
