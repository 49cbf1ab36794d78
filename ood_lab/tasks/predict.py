"""New images without labels: predicted class, score, p-value and verdict of every detector."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
from annotated_types import Interval
from rich.console import Console

from ood_lab.arguments import BatchSize, Count, Positive, Workers
from ood_lab.data.datamodule import OODDataModule
from ood_lab.data.fewshot import even_rows
from ood_lab.data.files import load_rgb
from ood_lab.data.sources import Given
from ood_lab.data.stores import Store
from ood_lab.detectors import (
    DEFAULT_ALPHA,
    CalibratedDetector,
    Detector,
    cannot_export,
    save_detector,
    save_onnx,
)
from ood_lab.errors import UserError
from ood_lab.evaluation.banks import check_sizes, columns_for, moments_for, split_by_columns
from ood_lab.evaluation.calibrate import (
    fit_and_held_out,
    fit_detectors,
    load_detectors,
    with_enough_held_out,
)
from ood_lab.evaluation.fitting import memory_limit
from ood_lab.evaluation.images import Images, read_images
from ood_lab.evaluation.second_pass import SecondPass
from ood_lab.features.bank import FeatureBank
from ood_lab.features.extract import extract
from ood_lab.features.identity import transform_text
from ood_lab.io import write_csv
from ood_lab.models import Backbone, require_onnx, weights_sha256
from ood_lab.report.blocks import Block
from ood_lab.report.optional import optional
from ood_lab.report.page import write_summary
from ood_lab.report.predictions import verdict_table, write_predictions_page
from ood_lab.report.terminal import Printed
from ood_lab.run.compose import command_to_repeat
from ood_lab.run.workspace import Task, Workspace
from ood_lab.words import counted

log = logging.getLogger(__name__)
BankOf = Callable[..., FeatureBank | None]
#: Images of which an exported graph is compared with PyTorch.
COMPARED = 16


@dataclass(frozen=True, kw_only=True)
class Predict(Task):
    """Writes ``predictions.csv``, ``predictions.html`` and, once fitted, ``detectors/``.

    A fitted detector is ``detectors/<name>.safetensors``, and ``<name>.onnx`` with its network
    where that is asked for (:func:`~ood_lab.detectors.onnx_export.save_onnx`). The table has a row
    per image: ``path, predicted``, for every detector ``<name>_score`` (higher = more OOD),
    ``<name>_p_value`` and ``<name>_is_ood`` (p-value ≤ alpha), and ``error`` (why an image could
    not be read). Held-out ID images are the val split, see
    :func:`~ood_lab.evaluation.calibrate.fit_detectors`; p-values are those of
    :class:`~ood_lab.detectors.calibration.CalibratedDetector`.

    Args:
        images: see :func:`~ood_lab.evaluation.images.read_images`.
        detector_file: saved detectors to use instead of fitting.
        alpha: largest false alarm rate on ID images, with as many held-out ones at least as it
            takes for a p-value to be that small; None = 0.05, or that of the saved detector.
        onnx: write ONNX files; what cannot be one is named in the log and in ``manifest.json``.
        batch_size: images a forward.
        num_workers: loader processes.
        memory_limit_gb: bound on what a fit may need; None = 80% of free memory.
        max_batches: so many batches of images at most, at equal steps; None = all.

    Raises:
        UserError: see the checks; a saved detector of another backbone.
    """

    images: Given
    detector_file: str | Sequence[str] | None
    alpha: Annotated[float, Interval(gt=0, lt=1)] | None
    onnx: bool
    batch_size: BatchSize
    num_workers: Workers
    memory_limit_gb: Positive | None
    max_batches: Count | None

    def run(self, ws: Workspace) -> None:
        """See the class."""
        if self.onnx:
            require_onnx("task.onnx=true")
        limit = memory_limit(self.memory_limit_gb)
        most = None if self.max_batches is None else self.max_batches * self.batch_size
        pictures = read_images(self.images, most)
        ready = load_detectors(self.detector_file, self.alpha) if self.detector_file else {}
        data = None if ready else ws.data
        classes = data.classes if data else next(iter(ready.values())).classes
        backbone = ws.load_backbone(classes)
        weights, transform = weights_sha256(backbone), transform_text(backbone.transform, "images")
        for saved in ready.values():
            saved.check_backbone(weights, transform)
        wanted = {name: saved.detector for name, saved in ready.items()} or ws.detectors
        usable, refused = split_by_columns(wanted, backbone)
        if not usable:
            raise UserError(f"no detector works on this backbone. {'; '.join(refused.values())}")
        if self.onnx:
            _check_onnx(usable, backbone)
        alpha = DEFAULT_ALPHA if self.alpha is None else self.alpha
        if data:
            usable = with_enough_held_out(usable, len(data.splits["val"]), alpha, refused)
            check_sizes(usable, data, backbone.head.out_features)
        bank_of: BankOf = partial(
            extract,
            ws.extractor,
            backbone,
            root=ws.features_root,
            batch_size=self.batch_size,
            num_workers=self.num_workers,
            weights=weights,
        )
        pictures.readable.transform = backbone.transform
        sources = {"images": partial(bank_of, pictures.readable)}
        if data:
            sources["val"] = partial(bank_of, data.predict_dataset("val"))
        banks = _id_banks(data, usable, backbone, bank_of) if data else {}
        bank = sources["images"](columns=columns_for(usable, "images", True))
        banks |= {} if bank is None else {"images": bank}
        second = SecondPass.fit(
            ws.extractor, usable, lambda d: fit_and_held_out(d, banks, ws.seed)[0], limit
        )
        second.over(banks, sources)
        if not ws.is_main:
            return
        bank = banks["images"]
        if data:
            ready = fit_detectors(usable, banks, refused, alpha, classes, ws.seed, limit)
            for name, calibrated in ready.items():
                save_detector(ws.folder / "detectors" / f"{name}.safetensors", calibrated)
        table = predictions(pictures, bank, {name: ready[name] for name in ready if name in usable})
        write_csv(table, ws.folder / "predictions.csv")
        ws.manifest |= {
            "images": {
                "source": str(self.images),
                "identity": pictures.readable.identity,
                "passed_over": list(pictures.passed),
            },
            "classes": classes,
            "backbone": dict(bank.manifest),
            "detectors": {name: _summary(table, name, ready[name]) for name in ready},
            "refused": refused,
            **second.describe(),
        }
        if self.onnx:
            given = {name: ready[name] for name in ready if name in usable}
            not_exported = _export(given, backbone, pictures, ws.folder / "detectors")
            ws.manifest["not_exported"] = not_exported
        _show(table, ws.manifest, ready, ws.folder, pictures.readable.store)


def _id_banks(
    data: OODDataModule, detectors: Mapping[str, Detector], backbone: Backbone, bank_of: BankOf
) -> dict[str, FeatureBank]:
    """ID val, and train where a detector is fitted on it; empty on the other ranks."""
    data.use_transform(eval=backbone.transform)
    needed = ["train"] if any(d.fit_split == "train" for d in detectors.values()) else []
    banks = {
        split: bank_of(
            data.predict_dataset(split),
            columns=columns_for(detectors, split, split == "val"),
            moments=moments_for(detectors, split),
        )
        for split in [*needed, "val"]
    }
    return {split: bank for split, bank in banks.items() if bank is not None}


def predictions(
    images: Images, bank: FeatureBank, ready: Mapping[str, CalibratedDetector]
) -> pd.DataFrame:
    """The table of :class:`Predict`; unreadable images have no values but an ``error``."""
    classes = next(iter(ready.values())).classes
    # A head of other classes than the data's (a pretrained one) has no names here.
    named = len(classes) == bank.logits.shape[1]
    predicted = [classes[i] if named else f"class {i}" for i in bank.predictions.tolist()]
    columns: dict[str, Any] = {"predicted": predicted}
    for name, calibrated in ready.items():
        scores = calibrated.score(bank)
        columns[f"{name}_score"] = scores.numpy()
        columns[f"{name}_p_value"] = calibrated.p_values(scores).numpy()
        columns[f"{name}_is_ood"] = pd.array(calibrated.is_ood(scores).tolist(), dtype="boolean")
    found = pd.DataFrame(columns, index=pd.Index(images.rows))
    return images.table[["path"]].join(found).assign(error=images.table["error"])


def _check_onnx(detectors: Mapping[str, Detector], backbone: Backbone) -> None:
    """Raises :class:`UserError` where none of the detectors can be exported."""
    reasons = [cannot_export(detector, backbone) for detector in detectors.values()]
    known = [reason for reason in reasons if reason]
    if len(known) == len(reasons):
        raise UserError(f"task.onnx=true: {known[0]}; leave it out, or choose detector=[knn,msp]")


def _export(
    ready: Mapping[str, CalibratedDetector], backbone: Backbone, images: Images, folder: Path
) -> dict[str, str]:
    """Writes what can be an ONNX file; says why the others cannot."""
    readable, refused = images.readable, {}
    rows = even_rows(len(readable), COMPARED)
    batch = torch.stack([readable[int(row)]["image"] for row in rows])
    for name, calibrated in ready.items():
        try:
            save_onnx(folder / f"{name}.onnx", backbone, calibrated, batch)
        except UserError as error:
            refused[name] = str(error)
            log.warning("%s", error)
    written = [name for name in ready if name not in refused]
    log.info("%s in %s", counted(len(written), "ONNX file"), folder)
    return refused


def _summary(table: pd.DataFrame, name: str, calibrated: CalibratedDetector) -> dict[str, Any]:
    """What was decided about the images, and by what."""
    flagged = table[f"{name}_is_ood"]
    return calibrated.detector.describe() | {
        "alpha": calibrated.alpha,
        "threshold_score": calibrated.threshold,
        "held_out": len(calibrated.id_scores),
        "flagged": int(flagged.sum()),
        "share_flagged": float(flagged.mean()),
    }


def _show(
    table: pd.DataFrame,
    manifest: Mapping[str, Any],
    ready: Mapping[str, CalibratedDetector],
    folder: Path,
    store: Store,
) -> None:
    """Prints the summary, keeps it, and writes the page."""
    unreadable = int((table["error"] != "").sum())
    title = f"{counted(len(table), 'image')}, {unreadable:,} of them unreadable"
    if manifest["images"]["passed_over"]:
        title += "; other files were passed over (see the warning above)"
    blocks: list[Block] = [verdict_table(title, manifest["detectors"])]
    write_summary(blocks, folder, "predict")
    Console().print(Printed(blocks))
    log.info("predictions: %s", folder / "predictions.csv")
    with optional("predictions.html"):
        id_scores = {name: ready[name].id_scores.numpy() for name in manifest["detectors"]}
        page = write_predictions_page(
            folder / "predictions.html",
            table,
            id_scores,
            blocks,
            manifest,
            lambda _, row: load_rgb(table["path"].iloc[row], store),
            command_to_repeat(),
        )
        log.info("page: %s", page)
