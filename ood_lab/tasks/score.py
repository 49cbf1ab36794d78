"""The main task: features once, then every detector over every OOD set and shift level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import pandas as pd

from ood_lab.axes import LEVELS
from ood_lab.data.datamodule import OODDataModule
from ood_lab.detectors import Detector
from ood_lab.errors import UserError
from ood_lab.metrics import Evaluation, Protocol, best_detectors, results_of, significance_of
from ood_lab.models import Backbone
from ood_lab.tasks import tables
from ood_lab.tasks.banks import chosen_sets, extract_banks, split_by_columns
from ood_lab.tasks.dating import dating_of, heads_to_read
from ood_lab.tasks.detect import memory_limit, score_banks, suspicious
from ood_lab.tasks.gate import check_id_accuracy
from ood_lab.tasks.page import write_page
from ood_lab.tasks.tuning import Tuning, beside
from ood_lab.tasks.workplace import Workplace


def check_choices(
    *,
    data: OODDataModule,
    detectors: Mapping[str, Detector],
    metrics: Mapping[str, Any],
    shift: Mapping[str, Any],
    tuning: Tuning,
) -> list[str]:
    """The OOD sets to evaluate, once data, detectors, metrics, shift and tuning go together.

    Raises:
        UserError: they do not; see :func:`chosen_sets` and :meth:`Tuning.evaluated`.
    """
    if metrics["protocol"] not in (known := get_args(Protocol)):
        raise UserError(f"metrics.protocol={metrics['protocol']}: choose from {', '.join(known)}")
    for key, least in (("draws", 1), ("min_count", 1)):
        if metrics[key] < least:
            raise UserError(f"metrics.{key}={metrics[key]}: give a whole number from {least} on")
    return tuning.evaluated(data, chosen_sets(data, shift), detectors)


def score(
    *,
    place: Workplace,
    detectors: dict[str, Detector],
    backbone: Backbone,
    model: Mapping[str, Any],
    shift: Mapping[str, Any],
    tuning: Tuning,
    memory_limit_gb: float | None = None,
    report: bool = True,
) -> pd.DataFrame | None:
    """Extracts what no bank holds yet, scores, writes ``scores.parquet`` and ``results.*``.

    ``significance.csv`` has the tests between all pairs of detectors.
    Where the ID test set has levels or a category, ``dating.csv`` too.

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
    usable, refused = split_by_columns(detectors, backbone)
    heads = heads_to_read(data, backbone)
    banks = extract_banks(
        place, backbone, usable, ood_sets, tuning.splits, [heads] if heads else []
    )
    if not place.is_main:
        return None
    accuracy = check_id_accuracy(banks["test"], data.classes, model.get("expected_id_acc"))
    selection = tuning.select(usable, banks, limit, seed)
    usable = beside(usable, selection.detectors)
    scores, timing = score_banks(data, banks, usable, refused, ["test", *ood_sets], limit)
    tables.write_table(scores, folder / "scores.parquet")
    evaluation = Evaluation(
        known_columns(scores, shift["axes"], accuracy),
        list(timing),
        seed=seed,
        shift_order=[s for s in data.shift_order if s in ood_sets],
        **metrics,
    )
    results, best = results_of(evaluation, str(model["name"])), best_detectors(evaluation)
    tables.write_table(best, folder / "best.parquet")
    tables.write_csv(significance_of(evaluation), folder / "significance.csv")
    manifest = place.manifest
    manifest |= {
        "title": f"{model['name']} on {data.name}, seed {seed}",
        "protocol": metrics["protocol"],
        "model": model["name"],
        "classes": data.classes,
        "id_accuracy": accuracy,
        "shift_order": list(data.shift_order),
        "backbone": dict(banks["test"].manifest),
        "transform_overrides": backbone.transform_overrides,
        "data": {name: split.identity for name, split in data.splits.items()},
        "detectors": {n: usable[n].describe() | timing[n] for n in timing},
        "refused": refused,
        "tuning": selection.record,
        "warnings": [
            *manifest.get("warnings", []),
            *selection.warnings,
            *suspicious(scores, list(timing), ood_sets),
        ],
    }
    dating = None
    if accuracy is not None:
        dating = dating_of(data, banks["test"], backbone, str(model["name"]), seed)
    if dating is not None:
        tables.write_csv(dating, folder / "dating.csv")
    if report:
        write_page(folder, data, banks, scores, results, best, manifest, dating)
    # Last, so that a results table stands for a run that is whole.
    tables.write_csv(results, folder / "results.csv")
    tables.write_table(results, folder / "results.parquet")
    tables.show(results, manifest, best)
    return results


def known_columns(
    scores: pd.DataFrame, axes: Sequence[str], accuracy: float | None
) -> pd.DataFrame:
    """The scores without the levels nobody asked for, and without predictions that mean nothing."""
    unasked = [level for level in LEVELS if level not in axes]
    return scores.drop(columns=unasked + (["pred"] if accuracy is None else []))
