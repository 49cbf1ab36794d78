"""Banks → fitted detectors → scores → results → verdict, as plain functions of artefacts.

``task=score``, ``task=shift_report``, ``task=is_ood`` and :func:`ood_lab.evaluate` call them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import pandas as pd

from ood_lab.common.arguments import Settings
from ood_lab.common.files import write_csv, write_table
from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.detectors.base import COSTS, Detectors
from ood_lab.evaluation.detector_fitting import rows_of, score_banks
from ood_lab.evaluation.detector_tuning import Selection, Tuning, with_tuned
from ood_lab.evaluation.near_copies import NearCopies, auroc_sentences
from ood_lab.evaluation.network_passes import ScoringInput
from ood_lab.evaluation.score_warnings import suspicious
from ood_lab.evaluation.shift.image_distances import Distances
from ood_lab.evaluation.streaming_scores import joined_scores
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
from ood_lab.report.shift.shift_tables import WORDS as SHIFT_WORDS
from ood_lab.report.verdict import WORDS, Verdict
from ood_lab.schema.image_columns import LEVELS
from ood_lab.schema.results import ID_TEST, joined, write_results
from ood_lab.schema.run_record import Facts, RunRecord

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class EvaluatedSets:
    """The sets of an evaluation.

    Attributes:
        rows: the scores table of each set before any detector, ID test first; see
            :func:`~ood_lab.evaluation.detector_fitting.rows_of`.
        ood: names of the OOD sets.
        csid: names of sets that count as ID (full spectrum).
        shift_order: OOD sets from the slightest to the largest shift.
        groups: OOD sets by group.
        axes: columns of levels that results are about.
    """

    rows: dict[str, pd.DataFrame]
    ood: Sequence[str]
    csid: Sequence[str] = ()
    shift_order: Sequence[str] = ()
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    axes: Collection[str] = LEVELS

    @classmethod
    def of(cls, data: OODDataModule, inputs: ScoringInput, axes: Collection[str]) -> EvaluatedSets:
        """ID test, the csID and the OOD sets of a DataModule."""
        ood = inputs.ood
        names = ["test", *data.csid_names, *ood]
        groups = data.ood_groups.items()
        return cls(
            rows={name: rows_of(data.splits[name], inputs.banks[name]) for name in names},
            ood=ood,
            csid=data.csid_names,
            shift_order=[name for name in data.shift_order if name in ood],
            groups={group: [n for n in names if n in ood] for group, names in groups},
            axes=axes,
        )


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
        sets: EvaluatedSets,
        tuning: Tuning,
        seed: int,
        in_words: Callable[[str], str] = str,
    ) -> MethodScores:
        """Chooses settings, fits what is not fitted, and scores.

        Detectors that cannot work go to ``inputs.refused``; ``in_words`` words the reason. ``seed``
        is that of the tuning.
        """
        banks, refused = inputs.banks, inputs.refused
        if early := inputs.fitted:
            selection, detectors = early.selection, early.detectors
            table, timing = joined_scores(sets.rows, banks, detectors, refused, early.seconds)
        else:
            selection = tuning.select(inputs.usable, banks, seed)
            detectors = with_tuned(inputs.usable, selection.detectors)
            table, timing = score_banks(sets.rows, banks, detectors, refused, in_words)
        detectors = {name: detectors[name] for name in timing}
        facts: dict[str, Facts] = {
            name: {"input_type": d.input_type} | d.used_settings() | timing[name]
            for name, d in detectors.items()
        }
        costs = {name: COSTS.index(d.cost) for name, d in detectors.items()}
        return cls(table, facts, costs, detectors, selection)

    def evaluation(
        self, sets: EvaluatedSets, record: RunRecord, seed: int, metrics: Settings
    ) -> Evaluation:
        """Of the scores without unrequested levels and without predictions that mean nothing.

        Args:
            sets: that are evaluated.
            record: ``id_accuracy``, and ``findings`` of the check of the data.
            seed: of the bootstrap.
            metrics: further arguments of :class:`~ood_lab.metrics.Evaluation`.
        """
        left_out = [level for level in LEVELS if level in self.table and level not in sets.axes]
        left_out += ["pred"] if record.id_accuracy is None else []
        return Evaluation(
            self.table.drop(columns=left_out),
            list(self.facts),
            seed=seed,
            csid=sets.csid,
            shift_order=sets.shift_order,
            groups=sets.groups,
            flagged={name for finding in record.findings for name in finding.sets},
            **metrics,
        )


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
        sets: EvaluatedSets,
        record: RunRecord,
        *,
        metrics: Settings,
        seed: int,
        model_seed: int,
        accuracy: tuple[bool, Sequence[str]],
        copies: NearCopies,
        remarks: Sequence[str] = (),
        id_map: pd.DataFrame | None = None,
        shift: pd.DataFrame | None = None,
        statistics: pd.DataFrame | None = None,
        distances: Distances | None = None,
        membership: MembershipScores | None = None,
        hierarchy: pd.DataFrame | None = None,
    ) -> Self:
        """Evaluates scores; ``record`` gets the methods, the warnings and the verdict's remarks.

        Args:
            methods: the scores.
            sets: that they are of.
            record: of the run so far: network, data, warnings.
            metrics: further arguments of :class:`~ood_lab.metrics.Evaluation`.
            seed: of the bootstrap.
            model_seed: of the weights, written to the rows of detectors.
            accuracy: whether the network is no better than chance, and what to know of its
                answers (:func:`~ood_lab.evaluation.id_accuracy.accuracy_warnings`).
            copies: near copies among the images.
            remarks: of the verdict, before those on the data.
            id_map: rows of the mean average precision of a multi-label head.
            shift: rows of the shift of the sets, where no image has a distance of its own.
            statistics: ``dataset, index`` and statistics of the images, which causes are among.
            distances: of every image from ID train.
            membership: what a vision-language model says of every image.
            hierarchy: rows of the levels of the labels.
        """
        lost, doubts = accuracy
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
        evaluation = methods.evaluation(sets, record, seed, metrics)
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
            of_sets = membership.said_of(sets.ood).set_index("dataset")
            shares = (of_sets["rejected"] / of_sets["n"]).to_dict()
            of_id = shares.pop(ID_TEST)
            remarks += sentences(SHIFT_WORDS, "asked", of_id, shares.values(), membership.name)
            warnings += membership.warnings
        record.near_copies_auroc = copies.auroc(methods.table, names)
        of_copies = auroc_sentences(record.near_copies_auroc, recommended)
        record.verdict.remarks = [*remarks, *sentences(WORDS, "remarks", record)]
        record.warnings = [*record.warnings, *doubts, *of_copies, *warnings]
        record.detectors = {name: dict(facts) for name, facts in methods.facts.items()}
        record.tuning = methods.selection.record
        causes = None
        if statistics is not None:
            causes = cause_results(
                statistics,
                methods.table,
                recommended,
                model=model,
                resampling=evaluation.resampling,
            )
        parts = [id_map, detection]
        if distances is not None:
            parts.append(distances.level_results(evaluation, sets.ood, model, **metrics))
            shift = distances.results(seed)
            distances = replace(distances, images=statistics)
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
