"""What is known of a model without any OOD set: its accuracy on ID, and how to score it later."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from ood_lab.evaluation import tables
from ood_lab.evaluation.banks import extract_banks
from ood_lab.evaluation.dating import dating_of, heads_to_read
from ood_lab.evaluation.id_accuracy import check_id_accuracy
from ood_lab.evaluation.page import write_page
from ood_lab.features.bank import FeatureBank
from ood_lab.io import write_csv, write_table
from ood_lab.metrics import accuracy_of
from ood_lab.models import Backbone
from ood_lab.scripts import command
from ood_lab.tasks.workplace import Workplace


def score_id(
    place: Workplace, backbone: Backbone, model: Mapping[str, Any], report: bool
) -> pd.DataFrame | None:
    """:func:`~ood_lab.tasks.score.score` for data without OOD sets; the arguments are its own.

    Writes the same files as far as they need no detector; ``scores.parquet`` holds predictions.

    Returns:
        The results table; None on the other ranks, and where there is no ID accuracy.
    """
    data, folder, name = place.data, place.folder, str(model["name"])
    heads = heads_to_read(data, backbone)
    banks = extract_banks(place, backbone, {}, [], of_test=[heads] if heads else [])
    if not place.is_main:
        return None
    accuracy = check_id_accuracy(banks["test"], data.classes, model.get("expected_id_acc"))
    scores = tables.rows_of(data.splits["test"], banks["test"])
    write_table(scores, folder / "scores.parquet")
    manifest = place.manifest
    manifest |= run_facts(place, backbone, banks["test"], model, accuracy)
    whole = data.max_batches is None
    manifest |= {"refused": {}, "warnings": [later(folder if whole else None)]}
    if accuracy is None:
        tables.show_warnings(manifest)
        return None
    results = accuracy_of(scores, name, place.model_seed)
    dating = dating_of(data, banks["test"], backbone, name, place.seed)
    if dating is not None:
        write_csv(dating, folder / "dating.csv")
    write_csv(results, folder / "results.csv")
    write_table(results, folder / "results.parquet")
    if report:
        write_page(folder, data, banks, scores, results, None, manifest, dating)
    tables.show(results, manifest, None)
    return results


def run_facts(
    place: Workplace,
    backbone: Backbone,
    test: FeatureBank,
    model: Mapping[str, Any],
    accuracy: float | None,
) -> dict[str, Any]:
    """What the manifest says of any run over images, whatever is scored."""
    data = place.data
    return {
        "title": f"{model['name']} on {data.title}, seed {place.model_seed}",
        "seeds": {"training": place.model_seed, "evaluation": place.seed},
        "protocol": place.metrics["protocol"],
        "model": model["name"],
        "classes": data.classes,
        "id_accuracy": accuracy,
        "shift_order": list(data.shift_order),
        "backbone": dict(test.manifest),
        "transform_overrides": backbone.transform_overrides,
        "data": {name: split.identity for name, split in data.splits.items()},
    }


def later(run: Path | None) -> str:
    """How the detectors are scored once there is an OOD set; ``run`` may hold trained weights."""
    if run and (run / "checkpoints").is_dir():
        ckpt = shlex.quote(f"ckpt={run}")
        remedy = f"{command('eval')} {ckpt} data.ood.NAME=DIR scores them with these weights"
    else:
        remedy = "add data.ood.NAME=DIR to this command line"
    return f"there is no OOD set, so no detector was scored: {remedy}"
