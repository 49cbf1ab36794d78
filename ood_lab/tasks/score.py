"""The main task: features once, then every detector over every OOD set and shift level."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from ood_lab.common.arguments import check_values
from ood_lab.common.errors import UserError
from ood_lab.common.files import write_table
from ood_lab.data.dataset import ImageDataset
from ood_lab.evaluation.detector_fitting import rows_of
from ood_lab.evaluation.hierarchy_tables import heads_to_read, hierarchy_results
from ood_lab.evaluation.id_accuracy import (
    Chance,
    accuracy_warnings,
    advice_on,
    check_id_accuracy,
    id_map,
)
from ood_lab.evaluation.near_copies import NearCopies, with_near_copies
from ood_lab.evaluation.pipeline import EvaluationOutcome, MethodScores, ScoringInput
from ood_lab.evaluation.place_maps import pixel_results
from ood_lab.evaluation.prediction.calibration import n_held_out, threshold_of
from ood_lab.evaluation.run_page import maps_of_run, write_page
from ood_lab.evaluation.score_warnings import places_proposal
from ood_lab.evaluation.split_features import (
    Extraction,
    affordable,
    check_sizes,
    chosen_sets,
    split_by_columns,
)
from ood_lab.evaluation.streaming_scores import fit_before
from ood_lab.features.bank import FeatureBank
from ood_lab.features.extraction_hooks import Columns
from ood_lab.features.image_groups import group_count
from ood_lab.metrics import Evaluation, accuracy_of
from ood_lab.report.detection.detection_page import show
from ood_lab.report.rendering.drawing import optional
from ood_lab.report.rendering.summary import show_warnings
from ood_lab.run.commandline.composition import plain
from ood_lab.run.commandline.printed_commands import head_command, later, next_command
from ood_lab.run.job.workspace import Task, Workspace

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
        report: write figures and ``report.html`` too.
        keep_features: False: the evaluated sets are scored while they pass, and of the sets that
            detectors are fitted on features are kept where one of them needs more than sums.

    Raises:
        UserError: see the checks; a detector that cannot use this backbone is skipped and listed.
    """

    report: bool
    keep_features: bool

    def check(self, ws: Workspace) -> None:
        """Raises :class:`UserError` where data, detectors, metrics, shift and tuning clash."""
        sets_to_evaluate(ws)

    def run(self, ws: Workspace) -> pd.DataFrame | None:
        """Returns the results table; None on the other ranks, and where there is no number."""
        inputs = pass_images(ws, keep_features=self.keep_features)
        return evaluate_run(ws, inputs, report=self.report) if ws.is_main else None


def sets_to_evaluate(ws: Workspace) -> list[str]:
    """The OOD sets to evaluate, once everything goes together.

    None, where the data has no OOD set and nothing in the configuration asks for one.

    Raises:
        UserError: data, detectors, metrics, shift and tuning clash.
    """
    data, shift, tuning = ws.data, ws.report_by, ws.tuning
    check_values(Evaluation, ws.metrics, "metrics")
    check_sizes(ws.detectors, data, len(data.classes))
    if not data.ood_names and shift["sets"] and not tuning.sets:
        return []
    return tuning.evaluated(data, chosen_sets(data, shift), ws.detectors)


def pass_images(
    ws: Workspace,
    *,
    keep_features: bool = True,
    always: Columns = (),
    selection: Sequence[str] = (),
    images: Sequence[ImageDataset] = (),
) -> ScoringInput:
    """The passes over each set that is evaluated or fitted on; all ranks call it.

    Args:
        ws: the workspace.
        keep_features: see :class:`Score`.
        always: computed in every pass of the network.
        selection: sets whose features are read, too.
        images: the same, of sets that are made of ID test.
    """
    if ws.model.get("tiles") and (not keep_features or ws.tuning.mode == "id_only"):
        raise UserError(
            "model.tiles: task.keep_features=false and tuning=id_only read features of whole "
            "images; remove them"
        )
    data, ood_sets = ws.data, sets_to_evaluate(ws)
    extraction = Extraction(data, ws.backbone, ws.extractor, ws.features_root, ws.stages, always)
    usable, refused = split_by_columns(ws.detectors if ood_sets else {}, ws.backbone)
    heads = heads_to_read(data, ws.backbone)
    evaluated, of_test = [*data.csid_names, *ood_sets], [heads] if heads else []
    usable, left_out = affordable(usable, ws.backbone, ws.extractor, not ws.detectors_chosen)
    ws.record.left_out_to_save_time = list(left_out)
    refused |= left_out
    banks: dict[str, Any]
    fitted, copies = None, NearCopies()
    if keep_features:
        read = [*ws.tuning.splits, *selection]
        banks, copies = with_near_copies(
            data, extraction.banks(usable, evaluated, read, of_test, images)
        )
    else:  # detectors are fitted first, and then score the evaluated sets while these pass
        banks = dict(extraction.for_fits(usable, ws.tuning.splits))
        with ws.stages("score"):
            fitted = fit_before(ws.extractor, usable, banks, ws.tuning, ws.seed)
        refused |= fitted.refused
        for split in ["test", *evaluated]:
            kept = of_test if split == "test" else ()
            rest = extraction.scored(split, fitted.detectors, ws.folder / PASSED, kept)
            banks |= {} if rest is None else {split: rest}
    note_copies(ws, copies)
    return ScoringInput(
        usable=usable, refused=refused, banks=banks, fitted=fitted, copies=copies, ood=ood_sets
    )


def note_copies(ws: Workspace, copies: NearCopies) -> None:
    """Near copies in the record of the run."""
    ws.record.warnings.extend(copies.sentences)
    ws.record.near_copies.extend(copies.examples)


def evaluate_run(ws: Workspace, inputs: ScoringInput, *, report: bool) -> pd.DataFrame | None:
    """Scores, evaluates, writes, and shows what was found; the main process calls it.

    Args:
        ws: the workspace.
        inputs: of the passes.
        report: see :class:`Score`.
    """
    with ws.stages("score"):
        _note_network(ws, inputs)
        outcome = _outcome(ws, inputs)
        if outcome is None:
            show_warnings(ws.record)
            return None
        banks = {n: b for n, b in inputs.banks.items() if isinstance(b, FeatureBank)}
        maps = maps_of_run(ws.data, banks, outcome)
        pixels = pixel_results(maps, ws.data.splits, ws.record.model, resampling=ws.resampling)
        outcome = replace(outcome, tables=[*outcome.tables, pixels])
        for row in [] if pixels is None else pixels.to_dict("records"):
            log.info(
                "%s on %s: %s %.1f%%",
                row["detector"],
                row["dataset"],
                row["metric"],
                100 * row["value"],
            )
        outcome.write(ws.folder)
        shutil.rmtree(ws.folder / PASSED, ignore_errors=True)  # scores.parquet has all of it
        show(outcome.view, ws.folder, ws.settings["detector_table"] == "all", page=report)
        if report:
            with ws.stages("report"), optional("report.html"):
                write_page(ws.folder, ws.data, banks, outcome, maps)
    return outcome.results


def _note_network(ws: Workspace, inputs: ScoringInput) -> None:
    """Checks the ID accuracy, and notes what is true of any run over images."""
    test, data, settings, record = inputs.banks["test"], ws.data, ws.model, ws.record
    backbone, head = ws.backbone, record.fitted_head
    fitted = f" ({head['kind'].replace('_', ' ')} head fitted on ID train)" if head else ""
    record.model = str(settings["name"])
    record.title = f"{record.model}{fitted} on {data.title}, seed {ws.model_seed}"
    record.seeds = {"training": ws.model_seed, "evaluation": ws.seed}
    record.fpr95_positive = ws.metrics["fpr95_positive"]
    record.head, record.multilabel = str(backbone.kind), backbone.multilabel
    record.classes = list(data.classes)
    record.synthetic_ood = plain(ws.synthetic_ood) if ws.synthetic_ood else None
    record.split_off = {name: len(data.splits[name]) for name in data.split_off}
    by_shape = settings.get("match") == "shape" and not ws.cfg.debug
    remedy = head_command(settings)
    record.id_accuracy = check_id_accuracy(test, data.classes, by_shape, remedy)
    record.id_chance = Chance.of(test.labels, len(data.classes)).share
    record.shift_order = [name for name in data.shift_order if name in inputs.ood]
    groups = data.ood_groups.items()
    record.ood_groups = {group: [n for n in names if n in inputs.ood] for group, names in groups}
    record.csid = list(data.csid_names)
    record.backbone = test.record
    record.transform_overrides = dict(backbone.transform_overrides or {})
    record.data = data.identities
    record.refused = inputs.refused


def _outcome(ws: Workspace, inputs: ScoringInput) -> EvaluationOutcome | None:
    """What the scores show, or only the accuracy on ID; None where that is not known either."""
    record, data, banks = ws.record, ws.data, inputs.banks
    names = ["test", *data.csid_names, *inputs.ood]
    rows = {name: rows_of(data.splits[name], banks[name]) for name in names}
    advice, val_labels = advice_on(ws.backbone, record), data.splits["val"].labels
    accuracy = accuracy_warnings(banks, val_labels, record, advice)
    precision = hierarchy = None
    if ws.backbone.multilabel:
        precision = id_map(
            banks["test"], data.splits["test"], record.model, resampling=ws.resampling
        )
    if record.id_accuracy is not None:
        hierarchy = hierarchy_results(data, banks["test"], ws.backbone, record.model, ws.model_seed)
    if not inputs.ood:
        remedy = later(ws.folder if data.is_whole else None)
        record.warnings = [*record.warnings, *accuracy[1], remedy]
        scores, results = rows["test"], precision
        if record.id_accuracy is not None:
            results = accuracy_of(scores, record.model, ws.model_seed)
        if results is None:
            write_table(scores, ws.folder / "scores.parquet")
            return None
        results = results.assign(seed=ws.model_seed)
        tables = [results, hierarchy]
        return EvaluationOutcome(scores, results, None, record, tables=tables, hierarchy=hierarchy)
    if ws.model_seed != ws.seed:
        log.info("random numbers use seed=%d; the weights have seed %d", ws.seed, ws.model_seed)
    methods = MethodScores.of(inputs, rows, ws.tuning, ws.seed)
    record.refused = inputs.refused
    test, remarks = banks["test"], []
    if isinstance(test, FeatureBank) and "maps" in ws.backbone.gives:
        remarks = places_proposal(test, methods.detectors)
    outcome = EvaluationOutcome.of(
        methods,
        inputs,
        record,
        metrics=ws.metrics,
        seed=ws.seed,
        model_seed=ws.model_seed,
        accuracy=accuracy,
        axes=ws.report_by["axes"],
        remarks=remarks,
        id_map=precision,
        hierarchy=hierarchy,
    )
    detector, n = methods.detectors.get(outcome.recommended or ""), 0
    record.threshold = None
    if detector is not None:
        n = n_held_out(detector, group_count(data.splits["val"]))
        record.threshold = threshold_of(detector, banks, data.classes)
    name, settings = methods.selection.settings_of(detector.name if detector else None)
    record.verdict.next = next_command(ws.settings, ws.folder, name, ws.trains, n, settings)
    return outcome
