"""New images without labels: predicted class, score, p-value and verdict of every detector."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval
from PIL import Image
from torch import Tensor

from ood_lab.common.arguments import BatchSize, Count, Positive, Workers
from ood_lab.common.english import counted
from ood_lab.common.errors import UserError
from ood_lab.common.files import write_csv
from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.data.dataset import ImageDataset
from ood_lab.data.sources.image_files import FileDataset, decoding_of, load_rgb
from ood_lab.data.sources.image_lists import Listing
from ood_lab.data.sources.source_settings import Given
from ood_lab.detectors import (
    DEFAULT_ALPHA,
    CalibratedDetector,
    Detector,
    save_detector,
)
from ood_lab.detectors.base import Detectors
from ood_lab.detectors.deployment.calibration import CalibratedDetectors
from ood_lab.evaluation.detector_fitting import memory_limit
from ood_lab.evaluation.id_accuracy import held_out_accuracy
from ood_lab.evaluation.prediction.calibration import (
    decoding_with,
    fit_and_held_out,
    fit_detectors,
    learned_from_id,
    load_detectors,
    pool,
    without_training_images,
)
from ood_lab.evaluation.prediction.detector_summaries import detector_summary, id_image_table
from ood_lab.evaluation.prediction.image_differences import IDRange, group_causes
from ood_lab.evaluation.prediction.onnx_files import check_onnx, export_onnx_files
from ood_lab.evaluation.prediction.prediction_tables import (
    PredictionSink,
    judged_at_once,
    judged_in_parts,
    made_by,
    predictions,
)
from ood_lab.evaluation.prediction.table_parts import PartFiles, files_to_make
from ood_lab.evaluation.prediction.thresholds import Thresholds
from ood_lab.evaluation.prediction.unlabelled_images import (
    Images,
    list_images,
    opened,
    tell_passed,
)
from ood_lab.evaluation.second_pass import SecondPass
from ood_lab.evaluation.shift.statistics_column import StatisticsColumn
from ood_lab.evaluation.split_features import (
    check_sizes,
    columns_for,
    moments_for,
    split_by_columns,
)
from ood_lab.features.bank import FeatureBank
from ood_lab.features.bank_identity import transform_text
from ood_lab.features.cached_extraction import extract, made_from
from ood_lab.features.process_agreement import made_by_main
from ood_lab.features.streaming import DatasetParts, pass_through
from ood_lab.models import Backbone, require_onnx, weights_sha256
from ood_lab.report.detection.prediction_page import (
    Judged,
    verdict_sentences,
    verdict_table,
    write_predictions_page,
)
from ood_lab.report.detection.unusual_images import ID_IMAGES, IDImages
from ood_lab.report.rendering.blocks import Block, Text
from ood_lab.report.rendering.output_failures import optional
from ood_lab.report.rendering.page import write_summary
from ood_lab.report.rendering.terminal import print_blocks
from ood_lab.report.rendering.thumbnails import LoadImage
from ood_lab.run.building.workspace import Task, Workspace
from ood_lab.run.commandline.composition import command_to_repeat

log = logging.getLogger(__name__)
BankOf = Callable[..., FeatureBank | None]
Readable = FileDataset | Listing
#: In the run folder: the table, or the folder of its parts.
CSV, PARTS = "predictions.csv", "predictions"


@dataclass(frozen=True, kw_only=True)
class Predict(Task):
    """Writes ``predictions.csv`` or parts, ``predictions.html`` and, once fitted, ``detectors/``.

    A fitted detector is ``detectors/<name>.safetensors``, and ``<name>.onnx`` with its network
    where wanted (:func:`~ood_lab.detectors.deployment.onnx_export.save_onnx`). The table
    has a row per image: ``path, predicted``, for every detector ``<name>_score`` (higher = more
    OOD), ``<name>_p_value`` and ``<name>_is_ood`` (p-value ≤ alpha, or score ≥ a given threshold),
    and ``error`` (why an image could not be read). Held-out ID images are those of the val split
    that are no training images, see :mod:`~ood_lab.evaluation.prediction.calibration`; p-values
    are those of :class:`~ood_lab.detectors.deployment.calibration.CalibratedDetector`. Whether more
    images are flagged than by chance is tested by
    :func:`~ood_lab.metrics.resampling.chance_level.flagged_p_value`.

    More than ``shard_size`` images are not looked at before they pass, their features are not
    kept, and the table is ``predictions/part-00000.parquet`` and so on. Parts that lie there from
    a run that was killed are not made again where they are of the same addresses, network and
    detectors; the files that the addresses name are not asked.

    Args:
        images: see :func:`~ood_lab.evaluation.prediction.unlabelled_images.read_images`.
        detector_file: saved detectors to use instead of fitting.
        alpha: largest false alarm rate on ID images, with as many held-out ones at least as it
            takes for a p-value to be that small; None = 0.05, or that of the saved detector.
        threshold: the score from which an image is OOD, for the only detector or by detector.
        tpr: the fraction of the data's OOD images, all datasets together, that the threshold
            detects. At most one of alpha, threshold and tpr is given.
        onnx: write ONNX files; what cannot be one is named in the log and in ``manifest.json``.
        batch_size: images a forward.
        num_workers: loader processes.
        memory_limit_gb: bound on what a fit may need; None = 80% of free memory.
        shard_size: images of a Parquet part, about: it holds whole batches.
        max_batches: so many batches of images at most, at equal steps; None = all.

    Raises:
        UserError: see the checks; a saved detector of another backbone; tpr without OOD images.
    """

    images: Given
    detector_file: str | Sequence[str] | None
    alpha: Annotated[float, Interval(gt=0, lt=1)] | None
    threshold: float | Mapping[str, float] | None
    tpr: Annotated[float, Interval(gt=0, le=1)] | None
    onnx: bool
    batch_size: BatchSize
    num_workers: Workers
    memory_limit_gb: Positive | None
    shard_size: Count
    max_batches: Count | None

    def check(self, ws: Workspace) -> None:
        """Raises :class:`UserError` where two settings decide what is OOD."""
        Thresholds(self.threshold, self.tpr).check(self.alpha)

    def run(self, ws: Workspace) -> None:
        """See the class."""
        self.check(ws)
        thresholds = Thresholds(self.threshold, self.tpr)
        if self.onnx:
            require_onnx("task.onnx=true")
        limit = memory_limit(self.memory_limit_gb)
        most = None if self.max_batches is None else self.max_batches * self.batch_size
        listed = list_images(self.images, most)
        ready = load_detectors(self.detector_file, self.alpha) if self.detector_file else {}
        wanted = {name: saved.detector for name, saved in ready.items()} or ws.detectors
        thresholds.check_detectors(wanted)
        warnings: list[str] = []
        data = None if ready else ws.data
        decoding = decoding_of(data.splits["train"]) if data else decoding_with(ready)
        pictures = opened(listed, decoding) if len(listed) <= self.shard_size else None
        classes = data.classes if data else next(iter(ready.values())).classes
        backbone = ws.load_backbone(classes)
        weights, transform = weights_sha256(backbone), transform_text(backbone.transform, "images")
        for saved in ready.values():
            saved.check_backbone(weights, transform)
        ood = _ood_datasets(ws, self.tpr)
        usable, refused = split_by_columns(wanted, backbone)
        if not usable:
            raise UserError(f"no detector works on this backbone. {'; '.join(refused.values())}")
        if self.onnx:
            check_onnx(usable, backbone)
        alpha = None if thresholds else DEFAULT_ALPHA if self.alpha is None else self.alpha
        pooled = False
        if data:
            pooled = pool(data, usable, learned_from_id(backbone, classes, ws.cfg.get("ckpt")))
            if not pooled:
                warnings += without_training_images(data, ws.trained_on)
            check_sizes(usable, data, backbone.num_classes)
        bank_of: BankOf = partial(
            extract,
            ws.extractor,
            backbone,
            root=ws.features_root,
            batch_size=self.batch_size,
            num_workers=self.num_workers,
            weights=weights,
        )
        sources = {}
        if pictures is not None:
            pictures.readable.transform = backbone.transform
            sources["images"] = partial(bank_of, pictures.readable)
        if data and not pooled:
            sources["val"] = partial(bank_of, data.predict_dataset("val"))
        banks = _id_banks(data, usable, backbone, bank_of, pooled) if data else {}
        if ood:
            ws.data.use_transform(eval=backbone.transform)
        for name, images in ood.items():
            sources[f"ood/{name}"] = partial(bank_of, images)
            bank = sources[f"ood/{name}"](columns=columns_for(usable, name, True))
            banks |= {} if bank is None else {f"ood/{name}": bank}
        if pictures is not None:
            columns = [
                *columns_for(usable, "images", True),
                *([StatisticsColumn()] if data else []),
            ]
            bank = sources["images"](columns=columns)
            banks |= {} if bank is None else {"images": bank}
        second = SecondPass.fit(
            ws.extractor, usable, lambda d: fit_and_held_out(d, banks, ws.seed)[0], limit
        )
        second.over(banks, sources)

        def threshold_of(name: str, detector: Detector) -> float:
            return thresholds.of(name, detector, [banks[f"ood/{each}"] for each in ood])

        known: dict[str, tuple[FeatureBank, Tensor]] = {}
        id_split = "train" if pooled else "val"
        of_id = banks.get(id_split)
        inside = None if of_id is None else IDRange.of(of_id)

        def fit() -> dict[str, CalibratedDetector]:
            if not data:
                found = {name: ready[name] for name in ready if name in usable}
                if not thresholds:
                    return found
                return {n: c.at_threshold(threshold_of(n, c.detector)) for n, c in found.items()}
            found, scores = fit_detectors(
                *(usable, banks, refused, alpha, classes, ws.seed, limit),
                threshold_of if thresholds else None,
                pooled=pooled,
            )
            known.update(scores)
            for name, calibrated in found.items():
                found[name] = replace(calibrated, pixel_range=decoding.pixel_range)
                save_detector(ws.folder / "detectors" / f"{name}.safetensors", found[name])
            return found

        if pictures is None:
            tell_passed(listed.passed)
            ready, inside = made_by_main(ws.extractor, lambda: (fit(), inside))
            fitted_on = {n: s.identity for n, s in data.splits.items()} if data else None
            by = made_by(ready, fitted_on, ws.seed, thresholds.made_of(ood))
            names = listed.unopened(decoding)
            found = self._in_parts(ws, names, listed.passed, backbone, weights, ready, inside, by)
        else:
            ready = fit() if ws.is_main else {}
            found = _at_once(ws, pictures, banks.get("images"), ready, inside)
        if found is None:
            return
        accuracy = held_out_accuracy(banks[id_split], classes) if data else None
        shortages = {c.shortage: None for c in ready.values() if c.shortage}
        warnings += shortages
        for warning in warnings:
            log.warning("%s", warning)
        ws.manifest.setdefault("warnings", []).extend(warnings)
        if of_id is not None and "images" in banks:
            causes = group_causes(of_id, banks["images"], seed=ws.seed)
            ws.manifest["causes"] = causes.to_dict("records")
        ws.manifest |= {
            "images": {
                "source": str(self.images),
                "identity": found.identity,
                "passed_over": list(found.passed),
            },
            "classes": classes,
            "backbone": found.made_of,
            "id_accuracy": None if accuracy is None else accuracy[0],
            "id_accuracy_n": None if accuracy is None else accuracy[1],
            "threshold_from": {"tpr": self.tpr, "ood": {n: len(d) for n, d in ood.items()}}
            if ood
            else None,
            "detectors": {
                name: detector_summary(
                    found.judged, name, ready[name], thresholds.reached.get(name)
                )
                for name in ready
            },
            "refused": refused,
            **second.describe(),
        }
        if self.onnx:
            not_exported = export_onnx_files(ready, backbone, found.images, ws.folder / "detectors")
            ws.manifest["not_exported"] = not_exported
        own = None
        if data:
            own = IDImages(
                id_image_table(data.splits[id_split], known, ready),
                data.splits[id_split].load_image,
            )
            write_csv(own.table, ws.folder / ID_IMAGES)
        _show(found, ws.manifest, ready, own, ws.folder)

    def _in_parts(
        self,
        ws: Workspace,
        images: Listing,
        passed: Sequence[str],
        backbone: Backbone,
        weights: str,
        ready: CalibratedDetectors,
        inside: IDRange | None,
        verdicts_by: str,
    ) -> _NewImages | None:
        """Images that pass without being kept, on all processes; None on all but the main one."""
        trainer = ws.extractor
        images.transform = backbone.transform
        made_of = made_from(trainer, backbone, images, weights=weights)
        by = f"{made_of['key']} {verdicts_by}"
        parts = DatasetParts(len(images), self.batch_size, self.shard_size)
        files = PartFiles(ws.folder / PARTS, parts, lambda rows: f"{by} {images.digest(rows)}")
        missing = files_to_make(trainer, files)
        if ws.is_main and len(missing) < len(parts.numbers):
            made = len(parts.numbers) - len(missing)
            log.info("%s of %d are there already", counted(made, "part"), len(parts.numbers))
        if missing:
            needed = [
                (c.detector.extraction_hook, c.detector.second_pass_hook) for c in ready.values()
            ]
            columns = [column for pair in needed for column in pair if column is not None]
            pass_through(
                trainer,
                backbone,
                images,
                [*columns, *([StatisticsColumn()] if inside else [])],
                parts,
                missing,
                partial(PredictionSink, files, images, ready, inside),
                ws.features_root,
                num_workers=self.num_workers,
                lenient=True,
            )
        if not ws.is_main:
            return None
        files.remove_others()
        (ws.folder / CSV).unlink(missing_ok=True)
        judged = judged_in_parts(files, list(ready))
        if judged.read == 0:
            raise UserError(
                f"task.images: none of {judged.images:,} images can be read; first: "
                f"'{images.address(0)}' ({judged.table['error'].iloc[0]})"
            )
        identity = images.digest(range(len(images)))
        return _NewImages(judged, images, _picture_of(images), identity, passed, made_of)


@dataclass(frozen=True)
class _NewImages:
    """What a run found, and of which images.

    Attributes:
        judged: the verdicts.
        images: the dataset, with its transform; of one table, those that can be read.
        picture: ``(set, number of the image)`` → the image.
        identity: of the images; of parts, of their addresses.
        passed: what was passed over, in sentences.
        made_of: what the features are made from.
    """

    judged: Judged
    images: Readable
    picture: LoadImage
    identity: str
    passed: Sequence[str]
    made_of: dict[str, Any]


def _at_once(
    ws: Workspace,
    pictures: Images,
    bank: FeatureBank | None,
    ready: CalibratedDetectors,
    inside: IDRange | None,
) -> _NewImages | None:
    """Images whose features are in a bank; None without, on all but the main process."""
    if bank is None:
        return None
    table = predictions(pictures, bank, ready, inside)
    shutil.rmtree(ws.folder / PARTS, ignore_errors=True)  # of a longer list that was not finished
    write_csv(table, ws.folder / CSV)
    readable = pictures.readable

    def picture(_: str, row: int) -> Image.Image:
        return load_rgb(table["path"].iloc[row], readable.store, readable.decoding)

    judged = judged_at_once(table, list(ready))
    made_of = dict(bank.manifest)
    return _NewImages(judged, readable, picture, readable.identity, pictures.passed, made_of)


def _picture_of(images: Listing) -> LoadImage:
    return lambda _, row: load_rgb(images.address(row), images.store(row), images.decoding)


def _id_banks(
    data: OODDataModule, detectors: Detectors, backbone: Backbone, bank_of: BankOf, pooled: bool
) -> dict[str, FeatureBank]:
    """ID val, and train where a detector is fitted on it; empty on the other ranks.

    Where ``pooled``, only train, which is scored.
    """
    data.use_transform(eval=backbone.transform)
    fitted_on_train = pooled or any(d.fit_split == "train" for d in detectors.values())
    needed = [*(["train"] if fitted_on_train else []), *([] if pooled else ["val"])]
    banks = {
        split: bank_of(
            data.predict_dataset(split),
            columns=[
                *columns_for(detectors, split, pooled or split == "val"),
                *([StatisticsColumn()] if split == needed[-1] else []),
            ],
            moments=moments_for(detectors, split),
        )
        for split in needed
    }
    return {split: bank for split, bank in banks.items() if bank is not None}


def _ood_datasets(ws: Workspace, tpr: float | None) -> dict[str, ImageDataset]:
    """The data's OOD datasets, where the threshold is made of them.

    Raises:
        UserError: there is none.
    """
    if tpr is None:
        return {}
    if not ws.data.ood_names:
        raise UserError(f"task.tpr={tpr:g} needs OOD images: give them with data.ood.NAME=DIR")
    return {name: ws.data.predict_dataset(name) for name in ws.data.ood_names}


def _show(
    found: _NewImages,
    manifest: Mapping[str, Any],
    ready: CalibratedDetectors,
    own: IDImages | None,
    folder: Path,
) -> None:
    """Prints the summary, keeps it, and writes the page."""
    judged = found.judged
    title = f"{counted(judged.images, 'image')}, {judged.unreadable:,} of them unreadable"
    if found.passed:
        title += "; other files were passed over (see the warning above)"
    blocks: list[Block] = [
        *(Text(line, "answer") for line in verdict_sentences(judged.read, manifest)),
        verdict_table(title, manifest["detectors"]),
    ]
    write_summary(blocks, folder, "predict")
    print_blocks(blocks)
    log.info("predictions: %s", folder / judged.file)
    with optional("predictions.html"):
        id_scores = {name: ready[name].id_scores.numpy() for name in manifest["detectors"]}
        page = write_predictions_page(
            folder / "predictions.html",
            judged,
            id_scores,
            blocks,
            manifest,
            found.picture,
            command_to_repeat(),
            own,
        )
        log.info("page: %s", page)
