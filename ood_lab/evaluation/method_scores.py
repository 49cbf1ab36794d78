"""Scores of every method of a run: detectors, an ensemble, and a vision-language model."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.detectors.base import COSTS, Detectors
from ood_lab.evaluation.detector_fitting import rows_of, score_banks
from ood_lab.evaluation.detector_tuning import Selection, Tuning, with_tuned
from ood_lab.evaluation.ensembles import HELD_OUT, Member, with_ensemble
from ood_lab.evaluation.network_passes import Passed
from ood_lab.evaluation.second_pass import SecondPass
from ood_lab.evaluation.streaming_scores import joined_scores
from ood_lab.metrics import Evaluation
from ood_lab.schema.run_record import RunRecord
from ood_lab.schema.shift_axes import LEVELS

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MethodScores:
    """The scores table of a run, and what is known of its columns.

    Attributes:
        table: one row per image, one column per method, higher = more OOD.
        facts: what the manifest says of each method, by its column.
        costs: rank of what a method costs to run, by its column.
        detectors: of the network, by name.
        selection: of their settings.
        ensemble: ``networks`` and ``id_accuracy`` of the ensemble; empty without one.
    """

    table: pd.DataFrame
    facts: Mapping[str, Mapping[str, Any]]
    costs: Mapping[str, int]
    detectors: Detectors
    selection: Selection
    ensemble: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        passed: Passed,
        second: SecondPass,
        data: OODDataModule,
        sets: Sequence[str],
        tuning: Tuning,
        seed: int,
    ) -> MethodScores:
        """Fits what is not fitted, and scores.

        Detectors that cannot work go to ``passed.refused``.

        Args:
            passed: what the passes have left.
            second: the second pass, for which some detectors are fitted.
            data: of all sets.
            sets: that are evaluated, ID test first.
            tuning: of the settings.
            seed: of the tuning.
        """
        every = [*sets, *([HELD_OUT] if passed.members else [])]
        rows = {name: rows_of(data.splits[name], passed.banks[name]) for name in every}
        if early := passed.fitted:
            selection, detectors = early.selection, early.detectors
            of_sets = rows, passed.banks, detectors, passed.refused
            table, timing = joined_scores(*of_sets, early.seconds)
        else:
            selection = tuning.select(passed.usable, passed.banks, passed.limit, seed)
            detectors = with_tuned(passed.usable, selection.detectors)
            of_sets = rows, passed.banks, detectors, passed.refused
            table, timing = score_banks(*of_sets, passed.limit)
        for name in timing.keys() & second.fit_seconds.keys():
            timing[name]["fit_seconds"] = second.fit_seconds[name]
        used = {name: detectors[name] for name in timing}
        facts: dict[str, dict[str, Any]] = {
            name: {"input_type": d.input_type} | d.used_settings() | timing[name]
            for name, d in used.items()
        }
        costs = {name: COSTS.index(d.cost) for name, d in used.items()}
        together: dict[str, Any] = {}
        if passed.members:
            own = Member("1", detectors, passed.banks, table)
            of_members = passed.members, data, sets, passed.limit
            table, of_ensemble, together = with_ensemble(own, *of_members)
            right = together["id_accuracy"]
            shown = "not defined" if right is None else f"{right:.1%}"
            log.info("ensemble of %d networks: ID accuracy %s", together["networks"], shown)
            facts |= of_ensemble
            most = _above(costs)  # all networks cost more than one
            costs |= {name: costs.get(name.partition("@")[0], most) for name in of_ensemble}
        return cls(table, facts, costs, detectors, selection, together)

    def adding(self, name: str, table: pd.DataFrame, facts: Mapping[str, Any]) -> MethodScores:
        """With a further method, whose column ``table`` has; it costs more than all others."""
        costs = {**self.costs, name: _above(self.costs)}
        return replace(self, table=table, facts={**self.facts, name: facts}, costs=costs)

    def evaluation(
        self,
        data: OODDataModule,
        ood_sets: Sequence[str],
        axes: Sequence[str],
        record: RunRecord,
        seed: int,
        metrics: Mapping[str, Any],
    ) -> Evaluation:
        """Of the scores without unrequested levels and without predictions that mean nothing.

        Args:
            data: of all sets.
            ood_sets: that are evaluated.
            axes: level columns that are requested.
            record: ``id_accuracy``, and ``findings`` of the check of the data.
            seed: of the bootstrap.
            metrics: further arguments of :class:`~ood_lab.metrics.Evaluation`.
        """
        left_out = [level for level in LEVELS if level not in axes]
        left_out += ["pred"] if record.id_accuracy is None else []
        groups, findings = data.ood_groups.items(), record.findings
        return Evaluation(
            self.table.drop(columns=left_out),
            list(self.facts),
            seed=seed,
            csid=data.csid_names,
            shift_order=[s for s in data.shift_order if s in ood_sets],
            groups={group: [n for n in names if n in ood_sets] for group, names in groups},
            flagged={name for finding in findings for name in finding.sets},
            **metrics,
        )


def _above(costs: Mapping[str, int]) -> int:
    return max(costs.values(), default=0) + 1
