"""Banks → fitted detectors → scores → results → verdict, as plain functions of artefacts.

``task=score``, ``task=shift_report``, ``task=is_ood`` and :func:`ood_lab.evaluate` call them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import pandas as pd

from ood_lab.common.arguments import Settings
from ood_lab.common.files import write_csv, write_table
from ood_lab.detectors.base import COSTS, Detectors, Reasons
from ood_lab.evaluation.detector_fitting import each_that_works, fit_and_score
from ood_lab.evaluation.detector_tuning import Selection, Tuning, with_tuned
from ood_lab.evaluation.near_copies import NearCopies, auroc_sentences
from ood_lab.evaluation.score_warnings import suspicious
from ood_lab.evaluation.shift.image_distances import Distances
from ood_lab.evaluation.streaming_scores import Fitted, add_scores
from ood_lab.lvlm.scoring.membership_detector import MembershipScores, said_results
from ood_lab.metrics import (
    VERDICT,
    Evaluation,
    best_detectors,
    cause_results,
    results_of,
    significance_of,
    verdict_of,
)
from ood_lab.report.rendering.prose import sentences
from ood_lab.report.results_lookup import RunView
from ood_lab.report.shift.shift_tables import WORDS as SHIFT_WORDS
from ood_lab.report.verdict import WORDS, Verdict
from ood_lab.schema.image_columns import LEVELS
from ood_lab.schema.results import ID_TEST, joined, write_results
from ood_lab.schema.run_record import Facts, RunRecord


@dataclass(frozen=True, kw_only=True)
class ScoringInput:
    """What detectors are fitted and scored on, and what else was measured of the images.

    There are no banks on all but the main process.

    Attributes:
        usable: detectors that the network supports.
        refused: why it does not support the others.
        banks: features of the sets, by name; with ``fitted``, what is left of the evaluated ones.
        fitted: the detectors, where they were fitted before the images passed.
        copies: near copies among the images.
        ood: names of the OOD sets to evaluate.
        shift: rows of the shift of the sets, where no image has a distance of its own.
        statistics: ``dataset, index`` and statistics of the images, which causes are among.
        distances: of every image from ID train; the page begins with them.
        membership: what a vision-language model says of every image.
    """

    usable: Detectors
    refused: Reasons
    banks: Mapping[str, Any] = field(default_factory=dict)
    fitted: Fitted | None = None
    copies: NearCopies = field(default_factory=NearCopies)
    ood: Sequence[str] = ()
    shift: pd.DataFrame | None = None
    statistics: pd.DataFrame | None = None
    distances: Distances | None = None
    membership: MembershipScores | None = None


@dataclass(frozen=True)
class MethodScores:
    """The scores table of a run, and what is known of its columns.

    Attributes:
        table: one row per image, one column per method, higher = more OOD.
        facts: what the record says of each method, by its column.
        costs: rank of what a method costs to run, by its column.
        detectors: of the network, fitted, by name.
        selection: of their settings.
    """

    table: pd.DataFrame
    facts: Mapping[str, Facts]
    costs: Mapping[str, int]
    detectors: Detectors
    selection: Selection

    @classmethod
    def of(
        cls,
        inputs: ScoringInput,
        rows: dict[str, pd.DataFrame],
        tuning: Tuning,
        seed: int,
    ) -> MethodScores:
        """Chooses settings, fits what is not fitted, and scores.

        Detectors that cannot work go to ``inputs.refused``, with the reason.

        Args:
            inputs: of the detectors.
            rows: the scores table of each set before any detector, ID test first; see
                :func:`~ood_lab.evaluation.detector_fitting.rows_of`.
            tuning: of the settings.
            seed: of the tuning.
        """
        banks, refused = inputs.banks, inputs.refused
        if early := inputs.fitted:
            selection, detectors = early.selection, early.detectors
            work = partial(add_scores, rows, banks, early.seconds)
        else:
            selection = tuning.select(inputs.usable, banks, seed)
            detectors = with_tuned(inputs.usable, selection.detectors)
            work = partial(fit_and_score, rows, banks)
        timing = each_that_works(detectors, work, refused)
        table = pd.concat(rows.values(), ignore_index=True)
        detectors = {name: detectors[name] for name in timing}
        facts: dict[str, Facts] = {
            name: {"input_type": d.input_type} | d.used_settings() | timing[name]
            for name, d in detectors.items()
        }
        costs = {name: COSTS.index(d.cost) for name, d in detectors.items()}
        return cls(table, facts, costs, detectors, selection)


@dataclass(frozen=True, repr=False)
class EvaluationOutcome:
    """What the scores of an evaluation show.

    Attributes:
        scores: one row per image: ``dataset, index, label, pred`` and one column per detector,
            higher = more OOD.
        results: one row per number: ``detector, dataset, metric, value, ci_low, ci_high, n_id,
            n_ood`` and the other columns of ``results.csv`` (docs/reference/metrics.md).
        best: the detectors that are best, or not significantly worse, by set and metric; None
            without OOD sets.
        record: of what made the results.
        detectors: the fitted detectors, by name.
        tables: results of all kinds.
        evaluation: that the results are of; None without OOD sets.
        distances: of the images from ID train, where they were measured.
        hierarchy: rows of the levels of the labels, where there are any.
    """

    scores: pd.DataFrame
    results: pd.DataFrame
    best: pd.DataFrame | None
    record: RunRecord
    detectors: Detectors = field(default_factory=dict)
    tables: Sequence[pd.DataFrame | None] = ()
    evaluation: Evaluation | None = None
    distances: Distances | None = None
    hierarchy: pd.DataFrame | None = None

    @classmethod
    def of(
        cls,
        methods: MethodScores,
        inputs: ScoringInput,
        record: RunRecord,
        *,
        metrics: Settings,
        seed: int,
        model_seed: int,
        accuracy: tuple[bool, Sequence[str]],
        axes: Collection[str] = LEVELS,
        remarks: Sequence[str] = (),
        id_map: pd.DataFrame | None = None,
        hierarchy: pd.DataFrame | None = None,
    ) -> Self:
        """Evaluates scores; ``record`` gets the methods, the warnings and the verdict's remarks.

        Args:
            methods: the scores.
            inputs: that they were made from.
            record: of the run so far: network, data (``csid``, ``shift_order``, ``ood_groups``,
                ``findings``), ``id_accuracy`` and warnings.
            metrics: further arguments of :class:`~ood_lab.metrics.Evaluation`.
            seed: of the bootstrap.
            model_seed: of the weights, written to the rows of detectors.
            accuracy: whether the network is no better than chance, and what to know of its
                answers (:func:`~ood_lab.evaluation.id_accuracy.accuracy_warnings`).
            axes: columns of levels that results are about.
            remarks: of the verdict, before those on the data.
            id_map: rows of the mean average precision of a multi-label head.
            hierarchy: rows of the levels of the labels.
        """
        lost, doubts = accuracy
        shift, distances, membership = inputs.shift, inputs.distances, inputs.membership
        if membership is not None:  # it costs more than all detectors
            methods = replace(
                methods,
                table=membership.added_to(methods.table),
                facts={**methods.facts, membership.name: membership.describe()},
                costs={
                    **methods.costs,
                    membership.name: max(methods.costs.values(), default=0) + 1,
                },
            )
        model, names = record.model, list(methods.facts)
        # Without levels that nobody asked for, and without predictions that mean nothing.
        left_out = [level for level in LEVELS if level in methods.table and level not in axes]
        left_out += ["pred"] if record.id_accuracy is None else []
        evaluation = Evaluation(
            methods.table.drop(columns=left_out),
            names,
            seed=seed,
            csid=record.csid,
            shift_order=record.shift_order,
            groups=record.ood_groups,
            flagged={name for finding in record.findings for name in finding.sets},
            **metrics,
        )
        detection, best = results_of(evaluation, model), best_detectors(evaluation)
        if lost:
            best, verdict = best.assign(best=False), VERDICT.table([], model=model, seed=seed)
        else:
            verdict = verdict_of(evaluation, model, methods.costs)
            doubts = [*doubts, *suspicious(evaluation, methods.detectors)]
        rows = verdict.loc[verdict["metric"] == "recommended", "detector"]
        recommended = next(iter(rows), None)
        remarks, warnings = [*remarks], [*methods.selection.warnings]
        if membership is not None:
            of_sets = membership.said_of(inputs.ood).set_index("dataset")
            shares = (of_sets["rejected"] / of_sets["n"]).to_dict()
            of_id = shares.pop(ID_TEST)
            remarks += sentences(SHIFT_WORDS, "asked", of_id, shares.values(), membership.name)
            warnings += membership.warnings
        record.near_copies_auroc = inputs.copies.auroc(methods.table, names)
        of_copies = auroc_sentences(record.near_copies_auroc, recommended)
        record.verdict.remarks = [*remarks, *sentences(WORDS, "remarks", record)]
        record.warnings = [*record.warnings, *doubts, *of_copies, *warnings]
        record.detectors = dict(methods.facts)
        record.tuning = methods.selection.record
        causes = None
        if inputs.statistics is not None:
            causes = cause_results(
                inputs.statistics,
                methods.table,
                recommended,
                model=model,
                resampling=evaluation.resampling,
            )
        parts = [id_map, detection]
        if distances is not None:
            parts.append(distances.level_results(evaluation, inputs.ood, model, **metrics))
            shift = distances.results(seed)
            distances = replace(distances, images=inputs.statistics)
        results = joined(parts).assign(seed=model_seed)
        if membership is not None:
            results = membership.without_thresholds(results)
        results.attrs["fpr95_positive"] = evaluation.fpr95_positive
        answers = None if membership is None else said_results(membership, seed)
        verdict = verdict.assign(seed=model_seed)
        return cls(
            scores=methods.table,
            results=results,
            best=best,
            record=record,
            detectors=methods.detectors,
            tables=[verdict, causes, shift, results, answers, hierarchy],
            evaluation=evaluation,
            distances=distances,
            hierarchy=hierarchy,
        )

    @property
    def everything(self) -> pd.DataFrame:
        """The results of all kinds in one table."""
        return joined(self.tables)

    @property
    def verdict(self) -> Verdict:
        """The shift of each dataset, and which detector detects it."""
        return Verdict(self.everything, self.record)

    @property
    def view(self) -> RunView:
        """What tables and pages show of it."""
        return RunView(self.everything, self.best, self.record)

    @property
    def recommended(self) -> str | None:
        """The detector that the verdict recommends, if any."""
        return self.verdict.recommended

    def write(self, folder: Path) -> None:
        """Writes ``scores.parquet``, ``results.*`` and the tests between detectors.

        These are ``significance_best.parquet`` and ``significance.csv``.
        """
        write_table(self.scores, folder / "scores.parquet")
        if self.best is not None and self.evaluation is not None:
            write_table(self.best, folder / "significance_best.parquet")
            write_csv(significance_of(self.evaluation), folder / "significance.csv")
        write_results(self.everything, folder)
