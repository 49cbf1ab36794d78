"""The main task: features once, then every detector over every OOD set and shift level."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pandas as pd

from ood_lab.common.arguments import Positive, check_values
from ood_lab.common.files import write_table
from ood_lab.detectors.base import Detectors
from ood_lab.evaluation.detector_fitting import memory_limit, rows_of, score_banks
from ood_lab.evaluation.detector_results import DetectorResults
from ood_lab.evaluation.detector_tuning import Selection, with_tuned
from ood_lab.evaluation.ensembles import HELD_OUT, Member, same_network, with_ensemble
from ood_lab.evaluation.hierarchy_tables import heads_to_read, hierarchy_results
from ood_lab.evaluation.id_accuracy import Chance, accuracy_warnings, check_id_accuracy, id_map
from ood_lab.evaluation.pass_cost import affordable
from ood_lab.evaluation.prediction.calibration import n_held_out, threshold_of
from ood_lab.evaluation.run_page import write_page
from ood_lab.evaluation.score_warnings import suspicious
from ood_lab.evaluation.shift.image_distances import Distances, pooled
from ood_lab.evaluation.split_features import Extraction, check_sizes, chosen_sets, split_by_columns
from ood_lab.evaluation.streaming_scores import Fitted, fit_before, joined_scores
from ood_lab.evaluation.verdict_remarks import remarks_of
from ood_lab.features.bank import Banks, FeatureBank
from ood_lab.features.extraction_hooks import BankColumn
from ood_lab.lvlm.answers.membership_detector import MembershipScores, said_results
from ood_lab.metrics import (
    OF_SETS,
    Evaluation,
    accuracy_of,
    follow_all,
    follow_results,
    levels_of,
)
from ood_lab.report.rendering.output_failures import optional
from ood_lab.report.rendering.run_summary import show, show_warnings
from ood_lab.report.rendering.sentences import asked_sentence
from ood_lab.report.results_lookup import RunView
from ood_lab.report.verdict import Verdict
from ood_lab.run.building.workspace import LEFT_OUT, Task, Workspace
from ood_lab.run.commandline.composition import plain
from ood_lab.run.commandline.next_command import head_command, later, next_command
from ood_lab.schema.results import read_results, write_results
from ood_lab.schema.shift_axes import LEVELS
from ood_lab.shift import shift_results

log = logging.getLogger(__name__)
#: Folder of the scores of sets that pass, as long as the run is not finished.
PASSED = "passed"


#: Of a network that does not know the classes.
_LOST = "No detector is recommended: the ID accuracy is no better than chance."


@dataclass(frozen=True)
class Passed:
    """What the passes of the network have left; the banks of the other ranks are empty.

    Attributes:
        limit: bytes that a detector's fit may take, looked at before the banks took their share.
        extraction: made the passes.
        usable: detectors that the network supports.
        refused: why it does not support the others.
        banks: features of the sets, by name; with ``fitted``, what is left of the evaluated ones.
        fitted: the detectors, where they were fitted before the images passed.
        members: further networks of an ensemble.
    """

    limit: int
    extraction: Extraction
    usable: Detectors
    refused: dict[str, str]
    banks: dict[str, Any]
    fitted: Fitted | None = None
    members: Sequence[Member] = ()


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
        selection = [*ws.tuning.splits, *more]
        kept = [heads] if heads else []
        sets = (evaluated, selection, kept)
        usable, left_out = affordable(extraction, usable, sets, not ws.detectors_chosen)
        refused |= left_out
        ws.manifest |= {LEFT_OUT: list(left_out)} if left_out else {}
        if not self.keep_features:
            return _in_passing(ws, extraction, usable, refused, evaluated, limit, kept)
        banks = extraction.banks(usable, *sets)
        members: list[Member] = []
        known, same = {extraction.weights}, []
        for name, load in others:
            made = Extraction(ws.data, load(), ws.extractor, ws.features_root, ws.stages)
            if name and made.weights in known:
                same.append(name)
                continue
            known.add(made.weights)
            own = {key: d for key, d in ws.new_detectors().items() if key in usable}
            members.append(Member.passed(name, made, own, sets[:2], limit))
        ws.data.use_transform(eval=ws.backbone.transform)
        if more_than_once := same_network(same, len(members)):
            ws.manifest.setdefault("warnings", []).extend(more_than_once)
        return Passed(limit, extraction, usable, refused, banks, members=members)

    def scored(
        self,
        ws: Workspace,
        distances: Distances | None = None,
        passed: Passed | None = None,
    ) -> pd.DataFrame | None:
        """See :meth:`run`.

        Args:
            ws: the workspace.
            distances: of the images; the page begins with them.
            passed: where the passes have been made.
        """
        passed = passed or self.passed(ws)
        ood_sets = self._evaluated(ws)
        limit, banks = passed.limit, passed.banks
        scored = ["test", *ws.data.csid_names, *ood_sets]
        scored += [HELD_OUT] if passed.members else []
        with ws.stages("score"):
            if passed.fitted is None:
                second = passed.extraction.second_pass(passed.usable, banks, scored, limit)
            else:
                second = passed.fitted.second_pass
        if not ws.is_main:
            return None
        expected = ws.model.get("expected_id_acc")
        by_shape = ws.model.get("match") == "shape" and not ws.cfg.debug
        own, remedy = ws.data.classes, head_command(ws.model)
        accuracy = check_id_accuracy(banks["test"], own, expected, by_shape, remedy)
        ws.manifest |= _facts(ws, banks["test"], accuracy) | {"refused": passed.refused}
        ws.manifest |= second.describe()
        with ws.stages("score"):
            if ood_sets:
                fitted = second.fit_seconds
                results: pd.DataFrame | None = self._with_detectors(
                    ws, passed, ood_sets, fitted, distances
                )
            else:
                results = self._of_id_alone(ws, banks)
        shutil.rmtree(ws.folder / PASSED, ignore_errors=True)  # scores.parquet has all of it
        return results

    def _with_detectors(
        self,
        ws: Workspace,
        passed: Passed,
        ood_sets: Sequence[str],
        fitted: Mapping[str, float],
        distances: Distances | None,
    ) -> pd.DataFrame:
        """Fits and scores the detectors, and writes what was found.

        Those ``fitted`` for a second pass are fitted, in so many seconds.
        """
        manifest, banks, model = ws.manifest, passed.banks, str(ws.manifest["model"])
        if ws.model_seed != ws.seed:
            log.info("random numbers use seed=%d; the weights have seed %d", ws.seed, ws.model_seed)
        val_labels = ws.data.splits["val"].labels
        lost, doubts = accuracy_warnings(banks, val_labels, ws.backbone, manifest)
        evaluated = ["test", *ws.data.csid_names, *ood_sets]
        own, timing, tuning = self._own_scores(ws, passed, evaluated, fitted)
        usable, scores = own.detectors, own.scores
        ensemble: dict[str, Any] = {}
        if passed.members:
            members, limit = passed.members, passed.limit
            scores, ensemble, together = with_ensemble(own, members, ws.data, evaluated, limit)
            right = together["id_accuracy"]
            shown = "not defined" if right is None else f"{right:.1%}"
            log.info("ensemble of %d networks: ID accuracy %s", together["networks"], shown)
            manifest["title"] += f", with an ensemble of {together['networks']} networks"
            manifest["ensemble"] = together
        asked = self.asked(ws, evaluated)
        if asked is not None:
            scores = asked.added_to(scores)
        methods = [*timing, *ensemble, *([asked.name] if asked else [])]
        write_table(scores, ws.folder / "scores.parquet")
        groups = ws.data.ood_groups.items()
        evaluation = Evaluation(
            known_columns(scores, ws.report_by["axes"], manifest["id_accuracy"]),
            methods,
            seed=ws.seed,
            csid=ws.data.csid_names,
            shift_order=[s for s in ws.data.shift_order if s in ood_sets],
            groups={group: [n for n in names if n in ood_sets] for group, names in groups},
            flagged={name for found in manifest.get("findings", ()) for name in found["sets"]},
            **ws.metrics,
        )
        costs = {name: usable[name].cost_rank for name in timing}
        most = max(costs.values(), default=0) + 1  # all networks cost more than one
        costs |= {name: costs.get(name.partition("@")[0], most) for name in ensemble}
        costs |= {asked.name: max(costs.values(), default=0) + 1} if asked else {}
        found = DetectorResults.of(evaluation, model, costs, lost)
        found.write_tests(ws.folder)
        if not lost:
            doubts += suspicious(evaluation, usable)
        named = found.recommended if found.recommended in usable else None
        run = ws.folder if (ws.folder / "checkpoints").is_dir() else None
        of_threshold = n_held_out(usable[named], len(val_labels)) if named else 0
        remarks = [_LOST] if lost else []
        remarks += [asked_sentence(asked.said_of(ood_sets), asked.name)] if asked else []
        more = asked.warnings if asked else ()
        manifest |= {
            "verdict": {
                "remarks": [*remarks, *remarks_of(manifest)],
                "next": next_command(ws.settings, run, named, ws.trains, of_threshold),
            },
            "threshold": threshold_of(usable[named], banks, ws.data.classes) if named else None,
            "detectors": {
                n: {"input_type": usable[n].input_type} | usable[n].settings() | timing[n]
                for n in timing
            }
            | ensemble
            | ({asked.name: asked.describe()} if asked else {}),
            "tuning": tuning.record,
            "warnings": [*manifest.get("warnings", []), *doubts, *tuning.warnings, *more],
        }
        write_results(found.verdict.assign(seed=ws.model_seed), ws.folder)
        causes = self.causes(ws, banks, evaluated, scores, found.recommended)
        if causes is not None:
            write_results(causes, ws.folder)
        of_head = self._id_map(ws, banks)
        parts = [found.results] if of_head is None else [of_head, found.results]
        if distances is not None and len(distances.levels):
            pool = pooled(evaluation.scores, ws.data.ood_names, distances.levels)
            of_pool = Evaluation(
                pool,
                methods,
                seed=ws.seed,
                csid=ws.data.csid_names,
                metrics=[metric for metric in OF_SETS if metric.of_levels],
                **ws.metrics,
            )
            parts.append(levels_of(of_pool, model))
        results = pd.concat(parts, ignore_index=True).assign(seed=ws.model_seed)
        if asked is not None:
            results = asked.without_thresholds(results)
        if distances is not None:
            misses = follow_all(distances.degrees, scores, methods, list(distances.axes))
            distances = replace(distances, found=misses)
        return self._finish(ws, banks, scores, results, found.best, distances, asked)

    def _own_scores(
        self, ws: Workspace, passed: Passed, sets: Sequence[str], fitted: Mapping[str, float]
    ) -> tuple[Member, dict[str, dict[str, float]], Selection]:
        """The network with its scores, the seconds of each detector, and what was tuned."""
        every = [*sets, *([HELD_OUT] if passed.members else [])]
        rows = {name: rows_of(ws.data.splits[name], passed.banks[name]) for name in every}
        refused = ws.manifest["refused"]
        if passed.fitted is not None:
            selection, usable = passed.fitted.selection, passed.fitted.detectors
            seconds = passed.fitted.seconds
            scores, timing = joined_scores(rows, passed.banks, usable, refused, seconds)
        else:
            selection = ws.tuning.select(passed.usable, passed.banks, passed.limit, ws.seed)
            usable = with_tuned(passed.usable, selection.detectors)
            scores, timing = score_banks(rows, passed.banks, usable, refused, passed.limit)
        for name in timing.keys() & fitted.keys():
            timing[name]["fit_seconds"] = fitted[name]
        return Member("1", dict(usable), passed.banks, scores), timing, selection

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
        scores = rows_of(ws.data.splits["test"], banks["test"])
        write_table(scores, ws.folder / "scores.parquet")
        whole = ws.data.is_whole
        _, doubts = accuracy_warnings(banks, ws.data.splits["val"].labels, ws.backbone, ws.manifest)
        ws.manifest["warnings"] = [
            *ws.manifest.get("warnings", []),
            *doubts,
            later(ws.folder if whole else None),
        ]
        results = self._id_map(ws, banks)
        if ws.manifest["id_accuracy"] is not None:
            results = accuracy_of(scores, ws.manifest["model"], ws.model_seed)
        elif results is None:
            show_warnings(ws.manifest)
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
        manifest, hierarchy = ws.manifest, None
        if manifest["id_accuracy"] is not None:
            model = manifest["model"]
            hierarchy = hierarchy_results(ws.data, banks["test"], ws.backbone, model, ws.model_seed)
        tables = [results]
        if distances is not None:
            by = str(distances.facts["by"])
            tables.insert(0, shift_results(distances.summary, by, ws.seed, distances.rulers))
        if asked is not None:
            tables.append(said_results(asked, ws.seed))
        if hierarchy is not None:
            tables.append(hierarchy)
        if distances is not None:
            n = int((distances.degrees["dataset"] != "test").sum())
            model = manifest["model"]
            tables.append(follow_results(distances.found, n, model, ws.model_seed))
        write_results(tables, ws.folder)
        verdict = Verdict.of(read_results(ws.folder), manifest)
        view = RunView(results, best, manifest, verdict)
        show(view, ws.folder, ws.settings["detector_table"] == "all")
        if self.report:
            with ws.stages("report"), optional("report.html"):
                features = {n: b for n, b in banks.items() if isinstance(b, FeatureBank)}
                write_page(ws.folder, ws.data, features, scores, view, hierarchy, distances)
        return results


def _in_passing(
    ws: Workspace,
    extraction: Extraction,
    usable: Detectors,
    refused: dict[str, str],
    evaluated: Sequence[str],
    limit: int,
    kept: Sequence[BankColumn],
) -> Passed:
    """Fits first, and then scores the evaluated sets while they pass."""
    banks: dict[str, Any] = dict(extraction.for_fits(usable, ws.tuning.splits))
    with ws.stages("score"):
        fitted = fit_before(extraction.trainer, usable, banks, ws.tuning, limit, ws.seed)
    for split in ["test", *evaluated]:
        of_test = kept if split == "test" else ()
        left = extraction.scored(split, fitted.detectors, ws.folder / PASSED, of_test)
        banks |= {} if left is None else {split: left}
    return Passed(limit, extraction, usable, refused | fitted.refused, banks, fitted)


def _facts(ws: Workspace, test: FeatureBank, accuracy: float | None) -> dict[str, Any]:
    """What the manifest says of any run over images, whatever is scored."""
    data, model = ws.data, str(ws.model["name"])
    head = ws.manifest.get("fitted_head")
    shown = f"{model} ({head['kind'].replace('_', ' ')} head fitted on ID train)" if head else model
    return {
        "title": f"{shown} on {data.title}, seed {ws.model_seed}",
        "seeds": {"training": ws.model_seed, "evaluation": ws.seed},
        "fpr95_positive": ws.metrics["fpr95_positive"],
        "model": model,
        "head": str(ws.backbone.kind),
        "multilabel": ws.backbone.multilabel,
        "classes": data.classes,
        "synthetic_ood": plain(ws.synthetic_ood) if ws.synthetic_ood else None,
        "split_off": {name: len(data.splits[name]) for name in data.split_off},
        "id_accuracy": accuracy,
        "id_chance": Chance.of(test.labels, len(data.classes)).share,
        "shift_order": list(data.shift_order),
        "ood_groups": data.ood_groups,
        "csid": data.csid_names,
        "backbone": dict(test.manifest),
        "transform_overrides": ws.backbone.transform_overrides,
        "data": {name: split.identity for name, split in data.splits.items()},
    }


def known_columns(
    scores: pd.DataFrame, axes: Sequence[str], accuracy: float | None
) -> pd.DataFrame:
    """The scores without unrequested levels and without predictions that mean nothing."""
    unasked = [level for level in LEVELS if level not in axes]
    return scores.drop(columns=unasked + (["pred"] if accuracy is None else []))
