"""The pool of OOD images cut into levels of semantic and covariate shift."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import cast

import numpy as np
import pandas as pd

from ood_lab.common.arguments import Levels
from ood_lab.common.files import write_csv, write_table, write_text
from ood_lab.common.hints import check_known
from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.data.sources.file_facts import content_hashes
from ood_lab.data.sources.image_files import FileDataset
from ood_lab.report.rendering.blocks import Text
from ood_lab.report.rendering.prose import sentences
from ood_lab.report.shift.shift_figures import cells_figure
from ood_lab.report.shift.shift_tables import WORDS, cells_table
from ood_lab.run.job.workspace import Workspace
from ood_lab.schema.arrays import Ints
from ood_lab.schema.image_columns import LEVELS, MADE_OF, cell_name
from ood_lab.schema.results import write_results
from ood_lab.shift import (
    Edges,
    cell_counts,
    load_edges,
    pool_edges,
    save_edges,
)
from ood_lab.tasks.shift_scores import MeasuredSets, ShiftScores

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ShiftLevels(ShiftScores):
    """Measures the pool and writes ``levels.parquet``, ``level_edges.json`` and a list per cell.

    ``sha256`` in ``levels.parquet`` is that of the file of each image, "" where it is not one.
    ``cells/cov_<i>_sem_<j>.txt`` holds the lines ``path label`` of a cell (IS-OOD's naming, levels
    from 0); ``level_counts.csv`` and ``figures/cells`` how many images each has. Levels of a data
    set: ``data.levels=<folder>/levels.parquet``.

    Args:
        levels: of each axis; edges lie at two quantiles of the pool and evenly between.
        edges: ``level_edges.json`` of another division, used instead.
        sets: names of the OOD sets that make the pool; None = all.

    Raises:
        UserError: an unknown set, no such edges, degrees that do not spread.
    """

    levels: Levels
    edges: str | None
    sets: Sequence[str] | None

    def run(self, ws: Workspace) -> pd.DataFrame | None:
        """Returns the degrees of the pool with their levels; None on the other ranks."""
        divided = self.divided(ws)
        if divided is None:
            return None
        write_results(divided[0].results, ws.folder)
        return divided[1]

    def divided(self, ws: Workspace) -> tuple[MeasuredSets, pd.DataFrame] | None:
        """Measures, divides and shows; returns the shift, and the images with their levels.

        None on the other ranks.
        """
        edges = load_edges(self.edges) if self.edges else None
        names = ws.data.ood_names
        check_known(self.sets or (), names, "task.sets: '{name}' is not an OOD set")
        measured = self.measured(ws)
        if measured is None:
            return None
        degrees = measured.distances.degrees
        pool = degrees[degrees["dataset"].isin(list(self.sets or names))].reset_index(drop=True)
        edges = edges or pool_edges(pool["semantic"], pool["covariate"], levels=self.levels)
        pool, counts = write_division(ws, pool, edges)
        ws.record.edges = asdict(edges)
        ws.record.pool = len(pool)
        min_count = int(ws.metrics["min_count"])
        answers = sum(isinstance(block, Text) for block in measured.blocks)
        (sentence,) = sentences(WORDS, "cells", counts, min_count)
        measured.blocks.insert(answers, Text(sentence, "answer"))
        measured.blocks.append(cells_table(counts, min_count))
        self.show(ws, measured, [cells_figure(counts, counts >= min_count, min_count)])
        log.info("evaluate on these levels with data.levels=%s", ws.folder / "levels.parquet")
        return measured, pool


def with_sources(pool: pd.DataFrame, data: OODDataModule, cache: str) -> pd.DataFrame:
    """The images with the hash of their file.

    Where some are made of others (``synthetic_ood=...``) there are columns ``source`` (the file;
    elsewhere the image itself), ``corruption`` and ``severity`` (elsewhere empty and 0), too: with
    the settings of ``synthetic_ood`` they say how an image is made again.
    """
    names = [name for name in data.ood_names if "corruption" in data.splits[name].table]
    paths = pool["path"].astype(str)
    if names:
        how = ["corruption", "severity"]
        tables = [data.splits[name].table[how].assign(dataset=name) for name in names]
        corrupted = pd.concat([table.reset_index(names="index") for table in tables])
        pool = pool.merge(corrupted, "left", on=["dataset", "index"])
        pool = pool.fillna({"corruption": "", "severity": 0}).astype({"severity": int})
        paths = pool.pop(MADE_OF).fillna(pool["path"].astype(str))
        pool["source"] = paths
    return pool.assign(sha256=_contents(paths, data, cache))


def _contents(paths: pd.Series, data: OODDataModule, cache: str) -> list[str]:
    """The hashes of images by address, which may be in any store of the data."""
    wanted = set(paths)
    by_path: dict[str, str] = {}
    for images in data.splits.values():
        if isinstance(images, FileDataset):
            rows = np.flatnonzero(images.table["path"].isin(wanted))
            hashes = images.content_hashes(rows.tolist())
            by_path |= zip(images.table["path"].iloc[rows], hashes, strict=True)
    rest = [path for path in wanted if path not in by_path]  # files of sets that are used up
    by_path |= zip(rest, content_hashes(rest, cache), strict=True)
    return [by_path[path] for path in paths]


def write_division(ws: Workspace, pool: pd.DataFrame, edges: Edges) -> tuple[pd.DataFrame, Ints]:
    """Divides images by their degrees: returns them with their levels, and the counts of the cells.

    Writes the table of levels, the edges, the counts and one list per cell. Images that are made
    on access have no file, and are not listed.
    """
    semantic, covariate = edges.levels(pool["semantic"], pool["covariate"])
    counts, folder = cell_counts(covariate, semantic, edges.shape), ws.folder
    pool = pool.assign(semantic_level=semantic, covariate_level=covariate)
    pool = with_sources(pool, ws.data, ws.cfg.paths.cache)
    write_table(pool, folder / "levels.parquet")
    save_edges(folder / "level_edges.json", edges)
    frame = pd.DataFrame(counts).rename_axis("covariate_level", axis=0)
    write_csv(frame.add_prefix("semantic_").reset_index(), folder / "level_counts.csv")
    listed = pool[pool["corruption"] == ""] if "corruption" in pool else pool
    if len(listed) < len(pool):
        log.info(
            "the lists of cells/ hold the %s of %s images that are files; the others are made of "
            "ID test: data.levels=%s with the same synthetic_ood=... brings them all",
            f"{len(listed):,}",
            f"{len(pool):,}",
            folder / "levels.parquet",
        )
    for cell, rows in listed.groupby(list(LEVELS)):
        column, row = cast(tuple[int, int], cell)
        lines = rows["path"].astype(str) + " " + rows["label"].astype(int).astype(str) + "\n"
        write_text("".join(lines), folder / "cells" / f"{cell_name(row, column)}.txt")
    return pool, counts
