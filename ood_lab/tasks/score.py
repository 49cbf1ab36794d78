"""The main task: features once, then every detector over every OOD set and shift level."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ood_lab.arguments import Positive, check_values
from ood_lab.axes import LEVELS
from ood_lab.data.datamodule import OODDataModule
from ood_lab.detectors import Detector
from ood_lab.evaluation import tables
from ood_lab.evaluation.banks import check_sizes, chosen_sets, extract_banks, split_by_columns
from ood_lab.evaluation.dating import dating_of, heads_to_read
from ood_lab.evaluation.detect import memory_limit, score_banks, suspicious
from ood_lab.evaluation.id_accuracy import chance_warning, check_id_accuracy
from ood_lab.evaluation.id_only import run_facts, score_id
from ood_lab.evaluation.page import write_page
from ood_lab.evaluation.tuning import Tuning, with_tuned
from ood_lab.io import write_csv, write_table
from ood_lab.metrics import Evaluation, best_detectors, results_of, significance_of
from ood_lab.models import Backbone
from ood_lab.report.optional import optional
from ood_lab.tasks.workplace import Workplace

log = logging.getLogger(__name__)


def check_choices(
    *,
    data: OODDataModule,
    detectors: Mapping[str, Detector],
    metrics: Mapping[str, Any],
    shift: Mapping[str, Any],
    tuning: Tuning,
) -> list[str]:
    """The OOD sets to evaluate, once data, detectors, metrics, shift and tuning go together.

    None, where the data has no OOD set and nothing in the configuration asks for one.

    Raises:
        UserError: they do not; see :func:`chosen_sets` and :meth:`Tuning.evaluated`.
    """
    check_values(Evaluation, metrics, "metrics")
    check_sizes(detectors, data, len(data.classes))
    if not data.ood_names and shift["sets"] and not tuning.sets:
        return []
    return tuning.evaluated(data, chosen_sets(data, shift), detectors)


def score(
    *,
    place: Workplace,
    detectors: dict[str, Detector],
    backbone: Backbone,
    model: Mapping[str, Any],
    shift: Mapping[str, Any],
    tuning: Tuning,
    memory_limit_gb: Positive | None = None,
    report: bool = True,
) -> pd.DataFrame | None:
    """Extracts what no bank holds yet, scores, writes ``scores.parquet`` and ``results.*``.

    ``significance.csv`` has the tests between all pairs of detectors.
    Where the ID test set has levels or a category, ``dating.csv`` too. Without any OOD set there
    is the accuracy on ID alone, see :func:`~ood_lab.evaluation.id_only.score_id`.

    Args:
        place: where to work, and on what data.
        detectors: by the name of their column in the scores table.
        backbone: with weights; its own transform is used for every image.
        model: ``name`` and ``expected_id_acc`` are read.
        shift: ``sets`` (evaluate the named sets) and ``axes`` (level columns to evaluate along).
        tuning: how settings are chosen; what it chooses is scored beside the defaults.
        memory_limit_gb: bound on what a detector's fit may need; None = 80% of free memory.
        report: write figures and ``report.html`` too.

    Returns:
        The results table; None on the other ranks.

    Raises:
        UserError: see the checks; a detector that refuses this backbone is left out and listed.
    """
    data, folder, metrics, seed = place.data, place.folder, place.metrics, place.seed
    data.use_transform(eval=backbone.transform)
    limit = memory_limit(memory_limit_gb)  # before the banks take their share
    ood_sets = check_choices(
        data=data, detectors=detectors, metrics=metrics, shift=shift, tuning=tuning
    )
    if not ood_sets:
        return score_id(place, backbone, model, report)
    usable, refused = split_by_columns(detectors, backbone)
    heads = heads_to_read(data, backbone)
    banks = extract_banks(
        place, backbone, usable, ood_sets, tuning.splits, [heads] if heads else []
    )
    if not place.is_main:
        return None
    if place.model_seed != seed:
        log.info("seed=%d draws here; the weights have seed %d", seed, place.model_seed)
    accuracy = check_id_accuracy(banks["test"], data.classes, model.get("expected_id_acc"))
    manifest = place.manifest
    lost = chance_warning(banks["test"], accuracy, backbone, manifest)
    selection = tuning.select(usable, banks, limit, seed)
    usable = with_tuned(usable, selection.detectors)
    scores, timing = score_banks(data, banks, usable, refused, ["test", *ood_sets], limit)
    write_table(scores, folder / "scores.parquet")
    evaluation = Evaluation(
        known_columns(scores, shift["axes"], accuracy),
        list(timing),
        seed=seed,
        shift_order=[s for s in data.shift_order if s in ood_sets],
        **metrics,
    )
    results = results_of(evaluation, str(model["name"])).assign(seed=place.model_seed)
    best = best_detectors(evaluation)
    if lost:
        best["best"] = False
    write_table(best, folder / "best.parquet")
    write_csv(significance_of(evaluation), folder / "significance.csv")
    manifest |= run_facts(place, backbone, banks["test"], model, accuracy)
    manifest |= {
        "detectors": {n: usable[n].describe() | timing[n] for n in timing},
        "refused": refused,
        "tuning": selection.record,
        "warnings": [
            *manifest.get("warnings", []),
            *([lost] if lost else suspicious(scores, list(timing), ood_sets)),
            *selection.warnings,
        ],
    }
    dating = None
    if accuracy is not None:
        dating = dating_of(data, banks["test"], backbone, str(model["name"]), place.model_seed)
    if dating is not None:
        write_csv(dating, folder / "dating.csv")
    write_csv(results, folder / "results.csv")
    write_table(results, folder / "results.parquet")
    tables.show(results, manifest, best)
    if report:  # last: all numbers are on disk, whatever becomes of the page
        with optional("report.html"):
            write_page(folder, data, banks, scores, results, best, manifest, dating)
    return results


def known_columns(
    scores: pd.DataFrame, axes: Sequence[str], accuracy: float | None
) -> pd.DataFrame:
    """The scores without the levels nobody asked for, and without predictions that mean nothing."""
    unasked = [level for level in LEVELS if level not in axes]
    return scores.drop(columns=unasked + (["pred"] if accuracy is None else []))
