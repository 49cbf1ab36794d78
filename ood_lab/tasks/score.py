"""The main task: features once, then every detector over every OOD set and shift level."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pandas as pd

from ood_lab.common.arguments import Positive, check_values
from ood_lab.common.files import write_table
from ood_lab.evaluation.detector_fitting import memory_limit, rows_of
from ood_lab.evaluation.detector_results import DetectorResults
from ood_lab.evaluation.ensembles import HELD_OUT
from ood_lab.evaluation.hierarchy_tables import heads_to_read, hierarchy_results
from ood_lab.evaluation.id_accuracy import accuracy_warnings, check_id_accuracy, id_map
from ood_lab.evaluation.method_scores import MethodScores
from ood_lab.evaluation.near_copies import NearCopies, auroc_sentences
from ood_lab.evaluation.network_passes import Passed
from ood_lab.evaluation.pass_cost import affordable
from ood_lab.evaluation.prediction.calibration import n_held_out, threshold_of
from ood_lab.evaluation.run_facts import note_run, run_title
from ood_lab.evaluation.run_page import write_page
from ood_lab.evaluation.score_warnings import suspicious
from ood_lab.evaluation.second_pass import SecondPass
from ood_lab.evaluation.shift.image_distances import Distances
from ood_lab.evaluation.split_features import Extraction, check_sizes, chosen_sets, split_by_columns
from ood_lab.features.bank import Banks, FeatureBank
from ood_lab.features.extraction_hooks import BankColumn
from ood_lab.features.image_groups import group_count
from ood_lab.lvlm.answers.membership_detector import MembershipScores, said_results
from ood_lab.metrics import Evaluation, accuracy_of
from ood_lab.report.detection.detection_page import show
from ood_lab.report.rendering.output_failures import optional
from ood_lab.report.rendering.prose import sentences
from ood_lab.report.rendering.summary import show_warnings
from ood_lab.report.results_lookup import RunView
from ood_lab.report.shift.shift_sentences import asked_sentence
from ood_lab.report.verdict import WORDS, Verdict
from ood_lab.run.commandline.composition import plain
from ood_lab.run.commandline.next_command import head_command, later, next_command
from ood_lab.run.job.workspace import Task, Workspace
from ood_lab.schema.results import read_results, write_results

log = logging.getLogger(__name__)
#: Folder of the scores of sets that pass, as long as the run is not finished.
PASSED = "passed"


@dataclass(frozen=True, kw_only=True)
class Score(Task):
    """Extracts what no bank holds yet, scores, writes ``scores.parquet`` and ``results.*``.

    ``significance.csv`` has the tests between all pairs of detectors.
    Where the ID test set has levels or a category, rows of kind ``hierarchy``. Without any OOD set
    there is only the accuracy on ID, and ``scores.parquet`` holds predictions.

    Args:
        memory_limit_gb: bound on what a detector's fit may need; None = 80% of free memory.
        report: write figures and ``report.html`` too.
        keep_features: False: the evaluated sets are scored while they pass, and of the sets that
            detectors are fitted on features are kept where one of them needs more than sums.

    Raises:
        UserError: see the checks; a detector that cannot use this backbone is skipped and listed.
    """

    takes_ensembles: ClassVar[bool] = True
    #: Computed in every pass of the network.
    always: ClassVar[Sequence[BankColumn]] = ()
    memory_limit_gb: Positive | None
    report: bool
    keep_features: bool

    def check(self, ws: Workspace) -> None:
        """Raises :class:`UserError` where data, detectors, metrics, shift and tuning clash."""
        self._evaluated(ws)

    def _evaluated(self, ws: Workspace) -> list[str]:
        """The OOD sets to evaluate, once everything goes together.

        None, where the data has no OOD set and nothing in the configuration asks for one.
        """
        data, shift, tuning = ws.data, ws.report_by, ws.tuning
        check_values(Evaluation, ws.metrics, "metrics")
        check_sizes(ws.detectors, data, len(data.classes))
        if not data.ood_names and shift["sets"] and not tuning.sets:
            return []
        return tuning.evaluated(data, chosen_sets(data, shift), ws.detectors)

    def run(self, ws: Workspace) -> pd.DataFrame | None:
        """Returns the results table; None on the other ranks, and where there is no number."""
        return self.scored(ws)

    def passed(self, ws: Workspace, more: Sequence[str] = ()) -> Passed:
        """One pass over each set that is evaluated or fitted on, and over ``more``."""
        ood_sets = self._evaluated(ws)
        others = ws.other_networks() if ood_sets else []
        limit = memory_limit(self.memory_limit_gb)
        where = ws.data, ws.backbone, ws.extractor, ws.features_root, ws.stages
        extraction = Extraction(*where, always=self.always)
        usable, refused = split_by_columns(ws.detectors if ood_sets else {}, ws.backbone)
        heads = heads_to_read(ws.data, ws.backbone)
        evaluated = [*ws.data.csid_names, *ood_sets, *([HELD_OUT] if others else [])]
        sets = evaluated, [*ws.tuning.splits, *more], [heads] if heads else []
        usable, left_out = affordable(extraction, usable, sets, not ws.detectors_chosen)
        ws.record.left_out_to_save_time = list(left_out)
        passed = Passed(limit, extraction, usable, refused | left_out)
        if not self.keep_features:
            return passed.scored(sets, ws.tuning, ws.folder / PASSED, ws.seed)
        passed, same = passed.extracted(sets, others, ws.new_detectors)
        if same:
            ws.record.warnings.extend(same)
        self.note_copies(ws, passed.copies)
        return passed

    def note_copies(self, ws: Workspace, copies: NearCopies) -> None:
        """Near copies in the record of the run."""
        ws.record.warnings.extend(copies.sentences)
        ws.record.near_copies.extend(copies.examples)

    def scored(
        self, ws: Workspace, distances: Distances | None = None, passed: Passed | None = None
    ) -> pd.DataFrame | None:
        """See :meth:`run`.

        Args:
            ws: the workspace.
            distances: of the images; the page begins with them.
            passed: where the passes have been made.
        """
        passed = passed or self.passed(ws)
        ood_sets = self._evaluated(ws)
        with ws.stages("score"):
            second = passed.second_pass(["test", *ws.data.csid_names, *ood_sets])
        if not ws.is_main:
            return None
        self._note_network(ws, passed)
        ws.record.second_pass = second.describe()
        with ws.stages("score"):
            if ood_sets:
                results = self._with_detectors(ws, passed, second, ood_sets, distances)
            else:
                results = self._of_id_alone(ws, passed.banks)
        shutil.rmtree(ws.folder / PASSED, ignore_errors=True)  # scores.parquet has all of it
        return results

    def _note_network(self, ws: Workspace, passed: Passed) -> None:
        """Checks the ID accuracy, and notes what is true of any run over images."""
        test, data, settings = passed.banks["test"], ws.data, ws.model
        by_shape = settings.get("match") == "shape" and not ws.cfg.debug
        expected, remedy = settings.get("expected_id_acc"), head_command(settings)
        accuracy = check_id_accuracy(test, data.classes, expected, by_shape, remedy)
        model, made = str(settings["name"]), plain(ws.synthetic_ood) if ws.synthetic_ood else None
        ws.record.title = run_title(model, ws.record.fitted_head, data, ws.model_seed)
        ws.record.seeds = {"training": ws.model_seed, "evaluation": ws.seed}
        ws.record.fpr95_positive = ws.metrics["fpr95_positive"]
        ws.record.model = model
        note_run(ws.record, data, ws.backbone, test, accuracy, made)

    def _with_detectors(
        self,
        ws: Workspace,
        passed: Passed,
        second: SecondPass,
        ood_sets: Sequence[str],
        distances: Distances | None,
    ) -> pd.DataFrame | None:
        """Fits and scores the detectors, and writes what was found."""
        record, banks, data = ws.record, passed.banks, ws.data
        if ws.model_seed != ws.seed:
            log.info("random numbers use seed=%d; the weights have seed %d", ws.seed, ws.model_seed)
        lost, doubts = accuracy_warnings(banks, data.splits["val"].labels, ws.backbone, record)
        sets = ["test", *data.csid_names, *ood_sets]
        methods = MethodScores.of(passed, second, data, sets, ws.tuning, ws.seed)
        record.refused = passed.refused  # the scoring adds to them
        if methods.ensemble:
            record.title += f", with an ensemble of {methods.ensemble['networks']} networks"
            record.ensemble = dict(methods.ensemble)
        asked = self.asked(ws, sets)
        if asked is not None:
            methods = methods.adding(asked.name, asked.added_to(methods.table), asked.describe())
        write_table(methods.table, ws.folder / "scores.parquet")
        axes, metrics = ws.report_by["axes"], ws.metrics
        evaluation = methods.evaluation(data, ood_sets, axes, record, ws.seed, metrics)
        found = DetectorResults.of(evaluation, str(record.model), methods.costs, lost)
        found.write_tests(ws.folder)
        if not lost:
            doubts += suspicious(evaluation, methods.detectors)
        remarks = [asked_sentence(asked.said_of(ood_sets), asked.name)] if asked else []
        record.verdict.remarks = [*remarks, *sentences(WORDS, "remarks", record)]
        self._note_detectors(ws, banks, methods, found.recommended)
        record.near_copies_auroc = passed.copies.auroc(methods.table, list(methods.facts))
        doubts += auroc_sentences(record.near_copies_auroc, found.recommended)
        more = asked.warnings if asked else ()
        warnings = [*record.warnings, *doubts, *methods.selection.warnings, *more]
        record.warnings = warnings
        write_results(found.verdict.assign(seed=ws.model_seed), ws.folder)
        causes = self.causes(ws, banks, sets, methods.table, found.recommended)
        if causes is not None:
            write_results(causes, ws.folder)
        parts = [self._id_map(ws, banks), found.results]
        if distances is not None:
            model = str(record.model)
            parts.append(distances.level_results(evaluation, data.ood_names, model, **metrics))
            distances = distances.with_misses(methods.table, list(methods.facts))
        results = pd.concat([part for part in parts if part is not None], ignore_index=True)
        results = results.assign(seed=ws.model_seed)
        if asked is not None:
            results = asked.without_thresholds(results)
        return self._finish(ws, banks, methods.table, results, found.best, distances, asked)

    def _note_detectors(
        self, ws: Workspace, banks: Banks, methods: MethodScores, recommended: str | None
    ) -> None:
        """The next command and its threshold, and what is known of the methods."""
        named = recommended if recommended in methods.detectors else None
        n, threshold = 0, None
        if named is not None:
            detector = methods.detectors[named]
            n = n_held_out(detector, group_count(ws.data.splits["val"]))
            threshold = threshold_of(detector, banks, ws.data.classes)
        run = ws.folder if (ws.folder / "checkpoints").is_dir() else None
        ws.record.verdict.next = next_command(ws.settings, run, named, ws.trains, n)
        ws.record.threshold = threshold
        ws.record.detectors = {name: dict(facts) for name, facts in methods.facts.items()}
        ws.record.tuning = methods.selection.record

    def asked(self, ws: Workspace, sets: Sequence[str]) -> MembershipScores | None:
        """What a vision-language model says of these sets; scored like a detector."""
        return None

    def causes(
        self,
        ws: Workspace,
        banks: Banks,
        sets: Sequence[str],
        scores: pd.DataFrame,
        detector: str | None,
    ) -> pd.DataFrame | None:
        """What tells these sets from ID test, as results; None where no image was measured."""
        return None

    def _of_id_alone(self, ws: Workspace, banks: Banks) -> pd.DataFrame | None:
        """The accuracy, and how the detectors are scored once there is an OOD set."""
        record, data = ws.record, ws.data
        scores = rows_of(data.splits["test"], banks["test"])
        write_table(scores, ws.folder / "scores.parquet")
        _, doubts = accuracy_warnings(banks, data.splits["val"].labels, ws.backbone, record)
        remedy = later(ws.folder if data.is_whole else None)
        record.warnings = [*record.warnings, *doubts, remedy]
        results = self._id_map(ws, banks)
        if record.id_accuracy is not None:
            results = accuracy_of(scores, record.model, ws.model_seed)
        elif results is None:
            show_warnings(record)
            return None
        return self._finish(ws, banks, scores, results, None)

    def _id_map(self, ws: Workspace, banks: Banks) -> pd.DataFrame | None:
        """The mean average precision of a multi-label head; None of all others."""
        if not ws.backbone.multilabel:
            return None
        test, model, draws = ws.data.splits["test"], str(ws.model["name"]), ws.resampling["draws"]
        found = id_map(banks["test"], test, model, draws=draws, seed=ws.seed)
        return None if found is None else found.assign(seed=ws.model_seed)

    def _finish(
        self,
        ws: Workspace,
        banks: Banks,
        scores: pd.DataFrame,
        results: pd.DataFrame,
        best: pd.DataFrame | None,
        distances: Distances | None = None,
        asked: MembershipScores | None = None,
    ) -> pd.DataFrame:
        """Writes the results, shows them, and draws the page last: no number depends on it."""
        record, model, hierarchy = ws.record, ws.record.model, None
        if record.id_accuracy is not None:
            hierarchy = hierarchy_results(ws.data, banks["test"], ws.backbone, model, ws.model_seed)
        tables = [
            None if distances is None else distances.results(ws.seed),
            results,
            None if asked is None else said_results(asked, ws.seed),
            hierarchy,
            None if distances is None else distances.miss_results(model, ws.model_seed),
        ]
        write_results([table for table in tables if table is not None], ws.folder)
        verdict = Verdict.of(read_results(ws.folder), record)
        view = RunView(results, best, record, verdict)
        show(view, ws.folder, ws.settings["detector_table"] == "all", page=self.report)
        if self.report:
            with ws.stages("report"), optional("report.html"):
                features = {n: b for n, b in banks.items() if isinstance(b, FeatureBank)}
                write_page(ws.folder, ws.data, features, scores, view, hierarchy, distances)
        return results
