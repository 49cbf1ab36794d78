"""Semantic and covariate shift of every image from the ID set."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from ood_lab.common.arguments import Count
from ood_lab.common.files import write_csv, write_table
from ood_lab.evaluation.shift.image_distances import SPLIT, measured_degrees, summarised
from ood_lab.evaluation.shift.shift_encoder import clip_features, foreign, load_decompositions
from ood_lab.evaluation.shift.shift_rulers import corrupted_test, mark_distances, shift_in_units
from ood_lab.evaluation.split_features import require_ood
from ood_lab.metrics import VERDICT
from ood_lab.report.rendering.blocks import PlannedFigure, Text
from ood_lab.report.rendering.output_failures import optional
from ood_lab.report.rendering.prose import sentences
from ood_lab.report.rendering.summary import show_blocks
from ood_lab.report.rendering.table import Table
from ood_lab.report.shift.shift_page import write_shift_page
from ood_lab.report.shift.shift_sentences import agreement_sentences, farthest_sentences
from ood_lab.report.shift.shift_tables import agreement_table, summary_tables
from ood_lab.report.verdict.rules import WORDS, Verdict, shift_units
from ood_lab.run.job.workspace import Task, Workspace
from ood_lab.schema.results import write_results
from ood_lab.shift import shift_results
from ood_lab.shift.level_agreement import agreement

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Measured:
    """The shift of every image from ID train.

    Attributes:
        degrees: one row per image: ``dataset, index, path, label``, ``semantic`` and ``covariate``
            by LAID, and ``<axis>_pca``, ``<axis>_clip`` by the baselines.
        summary: see :func:`summarised`.
        blocks: what is shown first.
        results: the summary as a results table.
    """

    degrees: pd.DataFrame
    summary: pd.DataFrame
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
        self.show(ws, measured)
        return measured.results

    def show(self, ws: Workspace, measured: Measured, more: Sequence[PlannedFigure] = ()) -> None:
        """Prints the tables, keeps them to be shown again, and writes the page."""
        show_blocks(measured.blocks, ws.folder, "shift")
        if self.report:
            with optional("shift.html"):
                write_shift_page(
                    ws.folder,
                    measured.degrees,
                    measured.summary,
                    measured.blocks,
                    ws.data.load_image,
                    ws.record,
                    more,
                )

    def measured(self, ws: Workspace) -> Measured | None:
        """Writes the shift of the images of every set from ID train.

        Where a set brings known levels along, ``agreement.csv`` says how well the degrees rank
        them. ``D_sem`` and ``D_cov`` of an image are the cosine distances of the semantic and
        covariate part of its CLIP features to those of its k-th nearest ID training image
        (IS-OOD, section 3). ID test is measured like the OOD sets: it says what no shift looks
        like.

        Returns:
            What was found; None on the other ranks, which only extract.

        Raises:
            UserError: no OOD set, no LAID matrix for this CLIP, fewer ID images than k.
        """
        data, folder = ws.data, ws.folder
        require_ood(data)
        decompositions = load_decompositions(ws.clip, self.laid)
        names, made = ["train", "test", *data.ood_names], [corrupted_test(data.splits["test"])]
        where = data, ws.extractor, ws.features_root
        features = clip_features(*where, ws.clip, names, made=made)
        if not ws.is_main:
            return None
        device = ws.extractor.strategy.root_device
        of_data = {name: features[name] for name in names}
        degrees = measured_degrees(data, of_data, decompositions, self.k, device)
        write_table(degrees, folder / "shift_scores.parquet")
        summary = summarised(degrees, **ws.resampling)
        main = decompositions[0]
        k = self.k or main.k
        marks = mark_distances(data, features, main, k, device)
        write_table(marks, folder / "ruler.parquet")
        rulers, facts = shift_in_units(data, degrees, marks, list(SPLIT), k, **ws.resampling)
        results = shift_results(summary, ws.clip.name, ws.seed, rulers)
        write_results(results, folder)
        ws.record.title = f"Shift from {data.title}"
        ws.record.clip = dict(main.clip)
        ws.record.laid = dict(main.details)
        ws.record.k = k
        ws.record.rulers = facts
        ws.record.id_images = len(features["train"])
        ws.record.data = {name: split.identity for name, split in data.splits.items()}
        verdict = Verdict(VERDICT.table([], model=ws.clip.name, seed=ws.seed), shift_units(results))
        told = [*sentences(WORDS, "shift", {"rulers": facts}), *farthest_sentences(summary, SPLIT)]
        blocks: list[Table | Text] = [verdict.table(), *summary_tables(summary)]
        known = agreement(degrees, data)
        if len(known) and known["spearman"].notna().any():
            write_csv(known, folder / "agreement.csv")
            blocks.append(agreement_table(known))
            told += agreement_sentences(known, SPLIT)
        if doubt := foreign(ws.clip, data):
            ws.record.warnings = [*ws.record.warnings, doubt]
            told = [f"The shift of the sets is not known: {doubt}"]
        blocks = [*(Text(sentence, "answer") for sentence in told), *blocks]
        log.info("every image: %s", folder / "shift_scores.parquet")
        return Measured(degrees, summary, blocks, results)
