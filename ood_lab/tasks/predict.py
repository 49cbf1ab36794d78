"""New images without labels: predicted class, score, p-value and verdict of every detector."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import torch

from ood_lab.common.arguments import (
    BatchSize,
    Count,
    InnerShare,
    PositiveShare,
    Workers,
)
from ood_lab.common.errors import UserError
from ood_lab.common.files import write_csv
from ood_lab.common.grouping import distinct
from ood_lab.data.dataset import Splits
from ood_lab.data.sources.image_lists import Listing
from ood_lab.data.sources.source_settings import Given
from ood_lab.data.transforms.subsets import even_rows
from ood_lab.detectors import require_onnx
from ood_lab.detectors.base import Detectors
from ood_lab.detectors.deployment.calibration import CalibratedDetectors
from ood_lab.evaluation.place_maps import PlaceMaps, place_maps, with_maps
from ood_lab.evaluation.prediction.calibration import (
    learned_from_id,
    load_detectors,
    pool,
    without_training_images,
)
from ood_lab.evaluation.prediction.detector_source import (
    DetectorSource,
    PredictionFeatures,
    Thresholds,
)
from ood_lab.evaluation.prediction.detector_summaries import id_images, note_prediction
from ood_lab.evaluation.prediction.image_predictions import ImagePredictions
from ood_lab.evaluation.prediction.onnx_files import check_onnx, export_onnx_files
from ood_lab.evaluation.prediction.prediction_tables import made_by
from ood_lab.evaluation.prediction.unlabelled_images import (
    groups_of,
    list_images,
    opened,
    tell_passed,
)
from ood_lab.evaluation.score_warnings import places_proposal
from ood_lab.evaluation.split_features import check_sizes
from ood_lab.features.cached_extraction import NetworkPasses
from ood_lab.features.process_agreement import made_by_main
from ood_lab.models import Backbone
from ood_lab.report.detection.image_strips import ID_IMAGES, IDImages
from ood_lab.report.detection.prediction_page import write_predictions_page
from ood_lab.report.detection.prediction_summary import show_predictions
from ood_lab.report.rendering.drawing import optional
from ood_lab.run.commandline.printed_commands import command_to_repeat
from ood_lab.run.job.workspace import Task, Workspace
from ood_lab.schema.run_record import RunRecord

log = logging.getLogger(__name__)
#: New images whose groups are looked at before any work.
GROUPED = 1000


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
    :func:`~ood_lab.metrics.resampling.detector_comparison.flagged_p_value`.

    More than ``shard_size`` images are not looked at before they pass, their features are not
    kept, and the table is ``predictions/part-00000.parquet`` and so on. Parts that lie there from
    a run that was killed are not made again where they are of the same addresses, network and
    detectors; the files that the addresses name are not asked.

    Args:
        images: see :func:`~ood_lab.evaluation.prediction.unlabelled_images.list_images`.
        group: which new images belong together, see
            :func:`~ood_lab.evaluation.prediction.unlabelled_images.groups_of`; None = each image
            is its own.
        detector_file: saved detectors to use instead of fitting.
        alpha: largest false alarm rate on ID images, with as many held-out ones at least as it
            takes for a p-value to be that small; None = 0.05, or that of the saved detector.
        threshold: the score from which an image is OOD, for the only detector or by detector.
        tpr: the fraction of the data's OOD images, all datasets together, that the threshold
            detects. At most one of alpha, threshold and tpr is given.
        maps: write the maps of all images, of detectors that have them (``patch_knn``):
            ``maps.npz`` and, drawn over the images, ``maps/``. Not for parts.
        onnx: write ONNX files; what cannot be one is named in the log and in ``manifest.json``.
        batch_size: images a forward.
        num_workers: loader processes.
        shard_size: images of a Parquet part, about: it holds whole batches.

    Raises:
        UserError: see the checks; a saved detector of another backbone; tpr without OOD images.
    """

    images: Given
    group: str | None
    detector_file: str | Sequence[str] | None
    alpha: InnerShare | None
    threshold: float | Mapping[str, float] | None
    tpr: PositiveShare | None
    maps: bool
    onnx: bool
    batch_size: BatchSize
    num_workers: Workers
    shard_size: Count

    def check(self, ws: Workspace) -> None:
        """Raises :class:`UserError` where two settings decide what is OOD."""
        Thresholds(self.threshold, self.tpr).check(self.alpha)
        tiles = ws.model.get("tiles")
        if tiles and self.onnx:
            raise UserError("task.onnx=true: an ONNX file scores whole images, without model.tiles")
        if tiles == "auto" and self.detector_file:
            raise UserError(
                "model.tiles=auto looks at ID images: give RxC as those of task.detector_file"
            )

    def run(self, ws: Workspace) -> None:
        """See the class."""
        self.check(ws)
        if self.onnx:
            require_onnx("task.onnx=true")
        listed = list_images(self.images)
        if self.group:
            some = [listed.images.address(row) for row in even_rows(len(listed.images), GROUPED)]
            groups_of(listed, pd.Series(some), self.group)
        source = self._source(ws)
        data, decoding = source.data, source.decoding
        pictures = opened(listed, decoding) if len(listed.images) <= self.shard_size else None
        backbone = ws.load_backbone(source.classes)
        passes = NetworkPasses(
            ws.extractor, backbone, ws.features_root, self.batch_size, self.num_workers
        )
        usable, refused = source.supported_by(passes)
        ood: Splits = {}
        if self.tpr is not None:
            ood = {name: ws.data.predict_dataset(name) for name in ws.data.ood_names}
            if not ood:
                raise UserError(
                    f"task.tpr={self.tpr:g} needs OOD images: give them with data.ood.NAME=DIR"
                )
        if self.onnx:
            check_onnx(usable, backbone)
        pooled, warnings = _held_out_images(ws, source, usable, backbone)
        if data or ood:
            ws.data.use_transform(eval=backbone.transform)
        features = PredictionFeatures.extracted(passes, usable, data, ood, pictures, pooled)
        scored = {}

        def fit() -> CalibratedDetectors:
            place = ws.folder / "detectors"
            fitted, scores = source.calibrated(usable, features, refused, place, ws.seed)
            scored.update(scores)
            return fitted

        if pictures is None:
            tell_passed(listed.passed)
            ready, inside = made_by_main(ws.extractor, lambda: (fit(), features.inside))
            fitted_on = data.identities if data else None
            predicted = ImagePredictions.in_parts(
                passes,
                Listing(listed.images.sources, decoding),
                listed.passed,
                ready,
                inside,
                made_by(ready, fitted_on, ws.seed, source.thresholds.made_of(ood)),
                ws.folder,
                self.shard_size,
            )
        else:
            ready = fit() if ws.is_main else {}
            predicted = ImagePredictions.at_once(pictures, features, ready, ws.folder)
        if predicted is None:
            return
        if self.group:
            paths = predicted.verdicts.rows["path"]
            groups = groups_of(listed, paths, self.group, lambda text, doubtful=True: None)
            predicted = replace(predicted, verdicts=replace(predicted.verdicts, groups=groups))
        shortages = distinct(filter(None, (calibrated.shortage for calibrated in ready.values())))
        for warning in (sentences := [*warnings, *features.copies.sentences, *shortages]):
            log.warning("%s", warning)
        ws.record.warnings.extend(sentences)
        note_prediction(
            ws.record, predicted, features, source, ready, images=str(self.images), seed=ws.seed
        )
        if features.of_id is not None and "maps" in backbone.gives:
            ws.record.verdict.remarks = places_proposal(features.of_id, usable)
        ws.record.refused = refused
        ws.record.near_copies = features.copies.examples
        ws.record.id_split = features.id_split
        if self.onnx:
            files = export_onnx_files(ready, backbone, predicted.images, ws.folder / "detectors")
            ws.record.not_exported, ws.record.onnx_deviation = files
        unusual = None
        if data:
            unusual = id_images(data.splits[features.id_split], scored, ready)
            write_csv(unusual.table, ws.folder / ID_IMAGES)
        maps = [] if pictures is None else _maps(predicted, features, ready, backbone)
        if self.maps:
            if not maps:
                raise UserError("task.maps=true: no detector here has maps: detector=[patch_knn]")
            for image_maps in maps:
                image_maps.write(ws.folder, "images", predicted.picture)
        _show(predicted, ws.record, ready, unusual, ws.folder, maps)

    def _source(self, ws: Workspace) -> DetectorSource:
        """The detectors: those of the files, else of the configuration, with their ID images."""
        saved = load_detectors(self.detector_file, self.alpha) if self.detector_file else {}
        wanted = {name: calibrated.detector for name, calibrated in saved.items()} or ws.detectors
        thresholds = Thresholds(self.threshold, self.tpr)
        thresholds.check_detectors(wanted)
        return DetectorSource(wanted, saved, None if saved else ws.data, thresholds, self.alpha)


def _held_out_images(
    ws: Workspace, source: DetectorSource, detectors: Detectors, backbone: Backbone
) -> tuple[bool, list[str]]:
    """Whether all ID images are pooled, else val without training images, and what to warn of."""
    if not source.data:
        return False, []
    learned = learned_from_id(backbone, source.classes, ws.cfg.get("ckpt"))
    pooled = pool(source.data, learned)
    warnings = [] if pooled else without_training_images(source.data, ws.trained_on)
    check_sizes(detectors, source.data, backbone.num_classes)
    return pooled, warnings


def _maps(
    predicted: ImagePredictions,
    features: PredictionFeatures,
    ready: CalibratedDetectors,
    network: Backbone,
) -> list[PlaceMaps]:
    """The maps of the new images, under the numbers that they have in the table."""
    table = predicted.verdicts.table
    rows = torch.zeros(len(table), dtype=torch.int64)
    readable = torch.tensor((table["error"] == "").tolist())
    rows[readable] = torch.arange(int(readable.sum()))
    banks = {"images": features.banks["images"].rows(rows)}
    detectors = {name: calibrated.detector for name, calibrated in ready.items()}
    largest = {name: float(table[f"{name}_score"].max()) for name in ready}
    thresholds = {name: calibrated.threshold for name, calibrated in ready.items()}
    return place_maps(detectors, banks, thresholds, largest, network.transform)


def _show(
    predicted: ImagePredictions,
    record: RunRecord,
    ready: CalibratedDetectors,
    unusual: IDImages | None,
    folder: Path,
    maps: Sequence[PlaceMaps],
) -> None:
    """Prints the summary, keeps it, and writes the page."""
    blocks = show_predictions(predicted.verdicts, predicted.passed, record, folder)
    with optional("predictions.html"):
        page = write_predictions_page(
            folder / "predictions.html",
            predicted.verdicts,
            {name: ready[name].id_scores.numpy() for name in record.detectors},
            blocks,
            record,
            with_maps(predicted.picture, maps),
            command_to_repeat(),
            unusual,
            legends={image_maps.name: image_maps.legend for image_maps in maps},
        )
        log.info("page: %s", page)
