"""Figures and the one-page report of a run."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd

from ood_lab.common.files import write_csv
from ood_lab.common.grouping import with_keys
from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.detectors import DEFAULT_ALPHA, KNN, CalibratedDetector
from ood_lab.detectors.deployment.calibration import cross_fitted_scores
from ood_lab.evaluation.pipeline import EvaluationOutcome
from ood_lab.evaluation.place_maps import PlaceMaps, place_maps, with_maps
from ood_lab.evaluation.prediction.detector_summaries import id_images
from ood_lab.evaluation.published.numbers import PublishedRow, read_references
from ood_lab.evaluation.published.verification import (
    ABSENT,
    compare,
    numbers_of,
    protocol_differences,
)
from ood_lab.features.bank import Banks, FeatureBank
from ood_lab.metrics.pixel_scores import PIXELS
from ood_lab.report.detection.detection_page import write_report
from ood_lab.report.detection.image_strips import ID_IMAGES, UNUSUAL_BY, IDImages
from ood_lab.report.rendering.blocks import Block, Folded, Text
from ood_lab.report.rendering.table import Cell, Head, Table, name_cell
from ood_lab.schema.results import of_kind
from ood_lab.schema.run_record import Facts, RunRecord

#: Of more training images nobody looks at the most unusual ones.
MOST = 20_000


def write_page(
    folder: Path,
    data: OODDataModule,
    banks: Banks,
    outcome: EvaluationOutcome,
    maps: Sequence[PlaceMaps],
) -> None:
    """Writes ``figures/`` and ``report.html`` into the run folder.

    ``banks`` give features to draw, as far as there are any, ``data`` images to show, over which
    ``maps`` are drawn.
    """
    scores = outcome.scores
    evaluated = [name for name in scores["dataset"].unique() if name not in data.csid_names]
    unusual = unusual_training_images(data, banks.get("train"))
    if unusual is not None:
        write_csv(unusual.table, folder / ID_IMAGES)
    write_report(
        folder / "report.html",
        outcome.view,
        scores,
        features={n: banks[n].features.numpy() for n in evaluated if n in banks},
        load_image=with_maps(data.load_image, maps),
        legends={of.name: of.legend for of in maps},
        classes=data.classes,
        hierarchy=outcome.hierarchy,
        measured=outcome.distances,
        id_images=unusual,
        pixels=of_kind(outcome.everything, PIXELS.name),
        published=published_blocks(outcome.everything, outcome.record, str(data.name)),
    )


def maps_of_run(data: OODDataModule, banks: Banks, outcome: EvaluationOutcome) -> list[PlaceMaps]:
    """Maps of the evaluated sets; the threshold is exceeded by 5% of ID test."""
    scores = outcome.scores
    sets = {n: banks[n] for n in scores["dataset"].unique() if n in banks}
    detectors = with_keys(outcome.detectors, scores)
    of_test = scores[scores["dataset"] == "test"]
    thresholds = {n: float(of_test[n].quantile(1 - DEFAULT_ALPHA)) for n in detectors}
    largest = {n: float(scores[n].max()) for n in detectors}
    return place_maps(detectors, sets, thresholds, largest, data.predict_dataset("test").transform)


def unusual_training_images(data: OODDataModule, bank: FeatureBank | None) -> IDImages | None:
    """Score and p-value of every training image by :class:`KNN` fitted without it.

    See :func:`~ood_lab.detectors.deployment.calibration.cross_fitted_scores`.

    Args:
        data: set up.
        bank: of ``train``; None where its features were not kept.

    Returns:
        None without features, of one image, and of more than :data:`MOST`.
    """
    if bank is None or "features" not in bank.gives or not 1 < len(bank) <= MOST:
        return None
    knn = KNN().fit(bank)
    scores = cross_fitted_scores(knn, bank)
    ranked = CalibratedDetector.of(
        knn, scores, DEFAULT_ALPHA, weights_sha256="", transform="", groups=bank.groups
    )
    return id_images(data.splits["train"], {UNUSUAL_BY: (bank, scores)}, {UNUSUAL_BY: ranked})


_HEADS = ("method", "dataset", "metric", "paper", "this run", "difference")


def published_blocks(results: pd.DataFrame, record: RunRecord, data: str) -> list[Block]:
    """A table of each published table about data of this name that the run has numbers of.

    Args:
        results: of the run.
        record: of the run.
        data: ``data.name`` of the run.
    """
    rows = [row for row in read_references() if row.reference.protocol.get(("dataset",)) == data]
    if not rows:
        return []
    numbers, facts = numbers_of(results, record, data)
    blocks: list[Block] = []
    for name, group in groupby(rows, lambda row: row.reference.name):
        of_table = list(group)
        ours = compare(of_table, numbers, facts).to_dict("records")
        pairs = [p for p in zip(of_table, ours, strict=True) if p[1]["verdict"] != ABSENT]
        if pairs:
            blocks.append(_published(name, pairs, facts))
    return blocks


def _published(
    name: str,
    pairs: Sequence[tuple[PublishedRow, Mapping[Hashable, Any]]],
    facts: Facts,
) -> Folded:
    about = pairs[0][0].reference.about
    words = "; ".join(
        f"{d['field']}: {d['run']} here, {d['paper']} in the paper"
        for d in protocol_differences([row for row, _ in pairs], facts).to_dict("records")
    )
    how = f"The protocols differ. {words}." if words else "All that is stated agrees."
    note = f"{how} Compare: python eval.py task=verify task.run_folder=RUN task.row={name}"
    rows = [
        [
            *map(name_cell, (row.detector, row.ood, row.metric)),
            Cell(row.printed, row.value),
            Cell(
                f"{ours['run']:.2f}",
                ours["run"],
                "" if pd.isna(ours["ci_low"]) else f"{ours['ci_low']:.1f} to {ours['ci_high']:.1f}",
            ),
            Cell(f"{ours['difference']:+.2f}", ours["difference"]),
        ]
        for row, ours in pairs
    ]
    heads = [Head(text, "ascending") for text in _HEADS[:3]] + [Head(text) for text in _HEADS[3:]]
    table = Table("The paper's numbers and this run's", heads, rows, names=3)
    title = f"{about['title']} (arXiv {about['arxiv']}, {about['table']})"
    return Folded(title, [Text(note, "note"), table], page_only=True)
