"""Verdicts on new images that are written, at once or in parts, and the images they are of."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from PIL import Image

from ood_lab.common.errors import UserError
from ood_lab.common.files import write_csv
from ood_lab.data.sources.image_files import FileDataset, load_rgb
from ood_lab.data.sources.image_lists import Listing
from ood_lab.detectors.deployment.calibration import CalibratedDetectors
from ood_lab.evaluation.prediction.detector_source import PredictionFeatures
from ood_lab.evaluation.prediction.prediction_tables import (
    PredictionSink,
    judged_in_parts,
    predictions,
)
from ood_lab.evaluation.prediction.table_parts import PartFiles
from ood_lab.evaluation.prediction.unlabelled_images import ReadableImages
from ood_lab.evaluation.shift.statistics_column import IDRange, StatisticsColumn
from ood_lab.evaluation.split_features import columns_for, fill
from ood_lab.features.cached_extraction import NetworkPasses
from ood_lab.features.extraction_hooks import TilesColumn
from ood_lab.features.extraction_pass import DatasetParts
from ood_lab.models.image_tiles import tile_count
from ood_lab.report.detection.prediction_summary import Judged
from ood_lab.report.rendering.thumbnails import LoadImage
from ood_lab.schema.run_record import BankRecord

#: In the run folder: the table, or the folder of its parts.
CSV, PARTS = "predictions.csv", "predictions"


@dataclass(frozen=True)
class ImagePredictions:
    """What a run found, and of which images.

    Attributes:
        verdicts: on the images.
        images: the dataset, with its transform; of one table, those that can be read.
        picture: ``(set, number of the image)`` → the image.
        identity: of the images; of parts, of their addresses.
        passed: what was passed over, in sentences.
        made_of: what the features are made from.
    """

    verdicts: Judged
    images: FileDataset | Listing
    picture: LoadImage
    identity: str
    passed: Sequence[str]
    made_of: BankRecord

    @classmethod
    def at_once(
        cls,
        new: ReadableImages,
        features: PredictionFeatures,
        ready: CalibratedDetectors,
        folder: Path,
    ) -> ImagePredictions | None:
        """Writes the table of images with features; None on all but the main process."""
        if (bank := features.banks.get("images")) is None:
            return None
        table = predictions(new, bank, ready, features.inside)
        shutil.rmtree(folder / PARTS, ignore_errors=True)  # of a longer list that was not finished
        write_csv(table, folder / CSV)
        readable = new.readable

        def picture(_: str, row: int) -> Image.Image:
            return load_rgb(table["path"].iloc[row], readable.store, readable.decoding)

        flagged = {name: int(table[f"{name}_is_ood"].sum()) for name in ready}
        broken = int((table["error"] != "").sum())
        verdicts = Judged(table, len(table), broken, flagged, None, CSV)
        return cls(verdicts, readable, picture, readable.identity, new.passed, bank.record)

    @classmethod
    def in_parts(
        cls,
        passes: NetworkPasses,
        images: Listing,
        passed: Sequence[str],
        ready: CalibratedDetectors,
        inside: IDRange | None,
        verdicts_by: str,
        folder: Path,
        shard_size: int,
    ) -> ImagePredictions | None:
        """Images that pass without being kept, on all processes; None on all but the main one.

        Args:
            passes: through the network.
            images: the new ones.
            passed: what was passed over, in sentences.
            ready: fitted.
            inside: range of the ID images; None = not available.
            verdicts_by: see :func:`~ood_lab.evaluation.prediction.prediction_tables.made_by`.
            folder: of the run.
            shard_size: images of a part, about.

        Raises:
            UserError: no image can be read.
        """
        images.transform = passes.backbone.transform
        made_of = passes.record_of(images)
        by, tiles = f"{made_of.key} {verdicts_by}", tile_count(images.transform)
        parts = DatasetParts(len(images), max(1, passes.batch_size // tiles), shard_size)
        files = PartFiles(folder / PARTS, parts, lambda rows: f"{by} {images.digest(rows)}")
        columns = columns_for({name: calibrated.detector for name, calibrated in ready.items()})
        columns += [StatisticsColumn()] if inside else []
        columns += [TilesColumn()] if tiles > 1 else []
        sink = partial(PredictionSink, files, images, ready, inside)
        fill(passes, files, images, columns, sink, lenient=True)
        if passes.trainer.global_rank != 0:
            return None
        files.remove_others()
        (folder / CSV).unlink(missing_ok=True)
        verdicts = judged_in_parts(files, list(ready))
        if verdicts.read == 0:
            raise UserError(
                f"task.images: none of {verdicts.images:,} images can be read; first: "
                f"'{images.address(0)}' ({verdicts.table['error'].iloc[0]})"
            )

        def picture(_: str, row: int) -> Image.Image:
            return load_rgb(images.address(row), images.store(row), images.decoding)

        return cls(verdicts, images, picture, images.digest(range(len(images))), passed, made_of)
