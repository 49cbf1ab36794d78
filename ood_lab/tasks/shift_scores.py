"""Semantic and covariate shift of every image from the ID set."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from ood_lab.common.arguments import Count
from ood_lab.common.files import write_csv, write_table
from ood_lab.evaluation.shift.image_distances import SPLIT, Distances, measured_degrees
from ood_lab.evaluation.shift.shift_encoder import clip_features, foreign, load_decompositions
from ood_lab.evaluation.shift.shift_rulers import corrupted_test, mark_distances
from ood_lab.evaluation.split_features import require_ood
from ood_lab.report.rendering.blocks import PlannedFigure, Text, texts
from ood_lab.report.rendering.drawing import optional
from ood_lab.report.rendering.prose import sentences
from ood_lab.report.rendering.summary import LINES, show_blocks
from ood_lab.report.rendering.table import Table
from ood_lab.report.shift.shift_page import write_shift_page
from ood_lab.report.shift.shift_tables import (
    agreement_sentences,
    agreement_table,
    farthest_sentences,
    summary_tables,
)
from ood_lab.report.verdict.rules import WORDS, Verdict
from ood_lab.run.job.workspace import Task, Workspace
from ood_lab.schema.results import write_results
from ood_lab.shift.level_agreement import agreement

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MeasuredSets:
    """The shift of every image and set from ID train.

    Attributes:
        distances: of every image: ``semantic`` and ``covariate`` by LAID, and ``<axis>_pca``,
            ``<axis>_clip`` by the baselines.
        blocks: what is shown first.
        results: the summary of the sets as a results table.
    """

    distances: Distances
    blocks: list[Table | Text]
    results: pd.DataFrame


@dataclass(frozen=True, kw_only=True)
class ShiftScores(Task):
    """Writes ``shift_scores.parquet``, ``results.*`` and ``shift.html``, see :meth:`measured`.

    Args:
        laid: folder with the matrices, see :func:`load_decompositions`.
        k: neighbour; None = that of the matrix (10).
        report: write figures and ``shift.html`` too.

    Raises:
        UserError: see :meth:`measured`.
    """

    laid: str | None
    k: Count | None
    report: bool

    def run(self, ws: Workspace) -> pd.DataFrame | None:
        """Returns the results table; None on the other ranks."""
        measured = self.measured(ws)
        if measured is None:
            return None
        write_results(measured.results, ws.folder)
        self.show(ws, measured)
        return measured.results

    def show(
        self, ws: Workspace, measured: MeasuredSets, figures: Sequence[PlannedFigure] = ()
    ) -> None:
        """Prints the tables, keeps them to be shown again, and writes the page."""
        show_blocks(measured.blocks, ws.folder, "shift", lines=LINES if self.report else None)
        if self.report:
            with optional("shift.html"):
                write_shift_page(
                    ws.folder,
                    measured.distances.degrees,
                    measured.distances.summary,
                    measured.blocks,
                    ws.data.load_image,
                    ws.record,
                    figures,
                )

    def measured(self, ws: Workspace) -> MeasuredSets | None:
        """Writes the shift of the images of every set from ID train.

        Where a set brings known levels along, ``agreement.csv`` says how well the degrees rank
        them. ``D_sem`` and ``D_cov`` of an image are the cosine distances of the semantic and
        covariate part of its CLIP features to those of its k-th nearest ID training image
        (IS-OOD, section 3). ID test is measured like the OOD sets: it says what no shift looks
        like.

        Returns:
            The distances; None on the other ranks, which only extract.

        Raises:
            UserError: no OOD set, no LAID matrix for this CLIP, fewer ID images than k.
        """
        data, folder, record = ws.data, ws.folder, ws.record
        require_ood(data)
        decompositions = load_decompositions(ws.clip, self.laid)
        names, corrupted = ["train", "test", *data.ood_names], corrupted_test(data.splits["test"])
        features = clip_features(
            data, ws.extractor, ws.features_root, ws.clip, names, images=[corrupted]
        )
        if not ws.is_main:
            return None
        device = ws.extractor.strategy.root_device
        of_data = {name: features[name] for name in names}
        main = decompositions[0]
        k = self.k or main.k
        degrees = measured_degrees(data, of_data, decompositions, self.k, device)
        marks = mark_distances(data, features, main, k, device)
        write_table(degrees, folder / "shift_scores.parquet")
        write_table(marks, folder / "ruler.parquet")
        facts = {"by": ws.clip.name, "k": k}
        distances = Distances.of(data, degrees, marks, SPLIT, facts, resampling=ws.resampling)
        results = distances.results(ws.seed)
        record.title = f"Shift from {data.title}"
        record.clip, record.laid = dict(main.clip), dict(main.details)
        record.k, record.rulers = k, distances.facts["rulers"]
        record.id_images = len(features["train"])
        record.data = data.identities
        verdict = Verdict(results)
        lines = [
            *sentences(WORDS, "shift", {"rulers": record.rulers}),
            *farthest_sentences(distances.summary, SPLIT),
        ]
        blocks: list[Table | Text] = [verdict.table(), *summary_tables(distances.summary)]
        levels = agreement(degrees, data)
        if len(levels) and levels["spearman"].notna().any():
            write_csv(levels, folder / "agreement.csv")
            blocks.append(agreement_table(levels))
            lines += agreement_sentences(levels, SPLIT)
        if doubt := foreign(ws.clip, data):
            record.warnings = [*record.warnings, doubt]
            lines = [f"The shift of the sets is not known: {doubt}"]
        blocks = [*texts(lines, "answer"), *blocks]
        log.info("every image: %s", folder / "shift_scores.parquet")
        return MeasuredSets(distances, blocks, results)
