"""What the scores of detectors show: numbers, the detectors that may be the best, the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ood_lab.common.files import write_csv, write_table
from ood_lab.metrics import (
    VERDICT,
    Evaluation,
    best_detectors,
    results_of,
    significance_of,
    verdict_of,
)


@dataclass(frozen=True)
class DetectorResults:
    """The results of one evaluation.

    Attributes:
        evaluation: of all detectors.
        results: see :func:`~ood_lab.metrics.results_of`.
        best: see :func:`~ood_lab.metrics.best_detectors`.
        verdict: rows of :func:`~ood_lab.metrics.verdict_of`.
    """

    evaluation: Evaluation
    results: pd.DataFrame
    best: pd.DataFrame
    verdict: pd.DataFrame

    @classmethod
    def of(
        cls, evaluation: Evaluation, model: str, costs: Mapping[str, int], lost: bool
    ) -> DetectorResults:
        """Measures everything.

        Args:
            evaluation: of all detectors.
            model: written to every row.
            costs: rank of what a detector costs to run, by name.
            lost: the network is no better than chance: no detector is best, and there is no
                verdict.
        """
        results, best = results_of(evaluation, model), best_detectors(evaluation)
        if lost:
            verdict = VERDICT.table([], model=model, seed=evaluation.seed)
            return cls(evaluation, results, best.assign(best=False), verdict)
        return cls(evaluation, results, best, verdict_of(evaluation, model, costs))

    @property
    def recommended(self) -> str | None:
        """The detector that the verdict recommends, if any."""
        rows = self.verdict[self.verdict["metric"] == "recommended"]
        return next(iter(rows["detector"]), None)

    def write_tests(self, folder: Path) -> None:
        """Writes the tests: ``significance_best.parquet`` and ``significance.csv``."""
        write_table(self.best, folder / "significance_best.parquet")
        write_csv(significance_of(self.evaluation), folder / "significance.csv")
