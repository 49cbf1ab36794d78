"""The main task: features once, then every detector over every OOD set and shift level."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import pandas as pd
import psutil

from ood_lab.data.datamodule import OODDataModule
from ood_lab.detectors import Detector, DetectorRefusal, check_memory, checked_score
from ood_lab.errors import UserError
from ood_lab.features.bank import FeatureBank
from ood_lab.features.column import Column
from ood_lab.features.extract import extract
from ood_lab.metrics import results_table
from ood_lab.models import Backbone, weights_sha256
from ood_lab.tasks import tables
from ood_lab.tasks.gate import check_id_accuracy

log = logging.getLogger(__name__)


def score(
    *,
    data: OODDataModule,
    backbone: Backbone,
    detectors: dict[str, Detector],
    extractor: L.Trainer,
    folder: Path,
    features_root: Path,
    model: Mapping[str, Any],
    metrics: Mapping[str, Any],
    shift: Mapping[str, Any],
    seed: int,
    manifest: dict[str, Any],
    is_main: bool,
    memory_limit_gb: float | None = None,
) -> pd.DataFrame | None:
    """Extracts what no bank holds yet, scores, writes ``scores.parquet`` and ``results.*``.

    Args:
        data: the DataModule, set up.
        backbone: with weights; its own transform is used for every image.
        detectors: by the name of their column in the scores table.
        extractor: Trainer whose ``predict`` runs the backbone; may have several devices.
        folder: run folder.
        features_root: folder of the feature banks.
        model: ``name`` and ``expected_id_acc`` are read.
        metrics: ``protocol``, ``draws``, ``min_count``.
        shift: ``sets`` (evaluate the named sets) and ``axes`` (level columns to evaluate along).
        seed: of the bootstrap, and a column of the results.
        manifest: filled with what made the numbers.
        is_main: False on the other ranks, which only extract.
        memory_limit_gb: bound on what a detector's fit may need; None = 80% of free memory.

    Returns:
        The results table; None on the other ranks.

    Raises:
        UserError: see the checks; a detector that refuses this backbone is left out and listed.
    """
    data.use_transform(eval=backbone.transform)
    limit = memory_limit(memory_limit_gb)  # before the banks take their share
    ood_sets = chosen_sets(data, shift)
    usable, refused = split_by_columns(detectors, backbone)
    banks = extract_banks(data, backbone, usable, ood_sets, extractor, features_root)
    if not is_main:
        return None
    accuracy = check_id_accuracy(banks["test"], data.classes, model.get("expected_id_acc"))
    scores, timing = score_banks(data, banks, usable, refused, ["test", *ood_sets], limit)
    tables.write_table(scores, folder / "scores.parquet")
    results = results_table(
        known_columns(scores, shift["axes"], accuracy),
        list(timing),
        model=str(model["name"]),
        seed=seed,
        shift_order=[s for s in data.shift_order if s in ood_sets],
        **metrics,
    )
    tables.write_table(results, folder / "results.parquet")
    tables.write_csv(results, folder / "results.csv")
    manifest |= {
        "title": f"{model['name']} on {data.name}, seed {seed}",
        "protocol": metrics["protocol"],
        "model": model["name"],
        "classes": data.classes,
        "id_accuracy": accuracy,
        "shift_order": list(data.shift_order),
        "backbone": dict(banks["test"].manifest),
        "data": {name: split.identity for name, split in data.splits.items()},
        "detectors": {n: usable[n].describe() | timing[n] for n in timing},
        "refused": refused,
    }
    tables.show(results, manifest)
    return results


def chosen_sets(data: OODDataModule, shift: Mapping[str, Any]) -> list[str]:
    """Names of the OOD sets to evaluate: all, or only those with the asked level columns.

    Raises:
        UserError: no set has such levels.
    """
    axes = list(shift["axes"])
    leveled = [n for n in data.ood_names if any(a in data.splits[n].table for a in axes)]
    if shift["sets"]:
        return [n for n in data.ood_names if axes or "semantic_level" not in data.splits[n].table]
    if not leveled:
        raise UserError(
            f"no OOD set has a column {' or '.join(axes)}: use shift=sets, or give a manifest "
            "with that column"
        )
    return leveled


def known_columns(
    scores: pd.DataFrame, axes: Sequence[str], accuracy: float | None
) -> pd.DataFrame:
    """The scores without the levels nobody asked for, and without predictions that mean nothing."""
    unasked = [level for level in tables.LEVELS if level not in axes]
    return scores.drop(columns=unasked + (["pred"] if accuracy is None else []))


def split_by_columns(
    detectors: Mapping[str, Detector], backbone: Backbone
) -> tuple[dict[str, Detector], dict[str, str]]:
    """Detectors the backbone can serve, and the reason for each of the others."""
    usable: dict[str, Detector] = {}
    refused: dict[str, str] = {}
    for name, detector in detectors.items():
        try:
            if detector.column is not None:
                detector.column.layers(backbone)
            usable[name] = detector
        except UserError as error:
            refused[name] = str(error)
    return usable, refused


def extract_banks(
    data: OODDataModule,
    backbone: Backbone,
    detectors: Mapping[str, Detector],
    ood_sets: Sequence[str],
    extractor: L.Trainer,
    root: Path,
) -> dict[str, FeatureBank]:
    """One bank a split: those some detector is fitted on, ID test, the OOD sets.

    Empty on the other ranks, which have done their share of the pass.
    """
    fitted_on = {d.fit_split for d in detectors.values()}
    weights = weights_sha256(backbone)
    banks = {}
    for split in ["train", "val", "test", *ood_sets]:
        evaluated = split == "test" or split in ood_sets
        if evaluated or split in fitted_on:
            columns = _columns(detectors, split, evaluated)
            bank = extract(
                extractor,
                backbone,
                data.predict_dataset(split),
                root,
                columns,
                batch_size=data.eval_batch_size,
                num_workers=data.num_workers,
                weights=weights,
            )
            if bank is not None:
                banks[split] = bank
    return banks


def _columns(detectors: Mapping[str, Detector], split: str, evaluated: bool) -> list[Column]:
    """What the detectors need of the pass over this split, each once."""
    wanted: dict[str, Column] = {}
    for detector in detectors.values():
        column = detector.column
        if column is not None and (
            evaluated or (column.needed_for_fit and detector.fit_split == split)
        ):
            wanted[column.key] = column
    return list(wanted.values())


def memory_limit(gigabytes: float | None) -> int:
    """Bytes a detector's fit may take: as given, or 80% of what is available now."""
    if gigabytes is not None:
        return int(gigabytes * 2**30)
    return int(0.8 * psutil.virtual_memory().available)


def score_banks(
    data: OODDataModule,
    banks: Mapping[str, FeatureBank],
    detectors: Mapping[str, Detector],
    refused: dict[str, str],
    evaluated: Sequence[str],
    limit: int,
) -> tuple[pd.DataFrame, dict[str, dict[str, float]]]:
    """Fits and scores every detector; adds those that refuse to ``refused``.

    Returns:
        The scores table and ``{detector: {fit_seconds, score_seconds}}``.
    """
    parts = {name: tables.rows_of(data.splits[name], banks[name]) for name in evaluated}
    timing: dict[str, dict[str, float]] = {}
    for name, detector in detectors.items():
        try:
            start = time.perf_counter()
            fit_bank = banks[detector.fit_split] if detector.fit_split else banks["test"]
            classes, width = fit_bank.head_weight.shape
            check_memory(detector, len(fit_bank), width, classes, limit)
            if detector.fit_split:
                detector.fit(fit_bank)
            fitted = time.perf_counter()
            scored = {s: checked_score(detector, banks[s]) for s in evaluated}
        except DetectorRefusal as refusal:
            refused[name] = str(refusal)
            log.warning("%s is left out: %s", name, refusal)
            continue
        for split, values in scored.items():
            parts[split][name] = values.numpy()
        end = time.perf_counter()
        timing[name] = {"fit_seconds": fitted - start, "score_seconds": end - fitted}
    if not timing:
        reasons = "; ".join(f"{n}: {reason}" for n, reason in refused.items())
        raise UserError(f"no chosen detector works here. {reasons}")
    return pd.concat(parts.values(), ignore_index=True), timing
