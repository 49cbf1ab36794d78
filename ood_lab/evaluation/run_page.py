"""Figures and the one-page report of a run."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ood_lab.common.files import read_table, write_csv
from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.evaluation.published.report_block import published_blocks
from ood_lab.evaluation.shift.image_distances import Distances
from ood_lab.evaluation.unusual_images import unusual_training_images
from ood_lab.features.bank import Banks
from ood_lab.report.detection.detection_page import write_report
from ood_lab.report.detection.image_strips import ID_IMAGES
from ood_lab.report.results_lookup import RunView
from ood_lab.report.shift.distance_page import Measured
from ood_lab.schema.results import read_results

#: Statistics of the images of a run.
STATISTICS = "image_statistics.parquet"


def write_page(
    folder: Path,
    data: OODDataModule,
    banks: Banks,
    scores: pd.DataFrame,
    view: RunView,
    hierarchy: pd.DataFrame | None = None,
    distances: Distances | None = None,
) -> None:
    """Writes ``figures/`` and ``report.html`` into the run folder.

    ``banks`` give features to draw, as far as there are any, ``data`` images to show.
    """
    evaluated = [name for name in scores["dataset"].unique() if name not in data.csid_names]
    id_images = unusual_training_images(data, banks.get("train"))
    if id_images is not None:
        write_csv(id_images.table, folder / ID_IMAGES)
    measured = None
    if distances is not None:
        measured = Measured(
            distances.degrees,
            distances.summary,
            distances.axes,
            view.verdict.named if view.verdict else None,
            view.record.distance,
            distances.found,
            causes=view.verdict.causes if view.verdict else pd.DataFrame(),
            images=read_table(folder / STATISTICS),
        )
    write_report(
        folder / "report.html",
        view,
        scores,
        features={n: banks[n].features.numpy() for n in evaluated if n in banks},
        load_image=data.load_image,
        classes=data.classes,
        hierarchy=hierarchy,
        measured=measured,
        id_images=id_images,
        published=published_blocks(read_results(folder), view.record, str(data.name)),
    )
