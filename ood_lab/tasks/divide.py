"""The pool of OOD images cut into levels of semantic and covariate shift."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import lightning as L
import numpy as np
import pandas as pd
from rich.console import Console

from ood_lab.clip import ClipModel
from ood_lab.data.datamodule import OODDataModule
from ood_lab.data.hints import suggestion
from ood_lab.errors import UserError
from ood_lab.report.figures.cells import write_cells_figure
from ood_lab.report.shift_tables import cells_table
from ood_lab.shift import (
    Edges,
    cell_counts,
    cell_file,
    load_edges,
    pool_edges,
    save_edges,
    write_imglist,
)
from ood_lab.tasks import tables
from ood_lab.tasks.measure import measure

log = logging.getLogger(__name__)
LEVELS = ("semantic_level", "covariate_level")


def divide(
    *,
    data: OODDataModule,
    clip: ClipModel,
    extractor: L.Trainer,
    folder: Path,
    features_root: Path,
    metrics: Mapping[str, Any],
    seed: int,
    manifest: dict[str, Any],
    is_main: bool,
    laid: str | None = None,
    k: int | None = None,
    levels: int = 8,
    edges: str | None = None,
    sets: Sequence[str] | None = None,
    report: bool = True,
) -> pd.DataFrame | None:
    """Measures the pool and writes ``levels.parquet``, ``edges.json`` and a list a cell.

    ``cells/cov_<i>_sem_<j>.txt`` holds the lines ``path label`` of a cell (IS-OOD's naming, levels
    from 0); ``counts.csv`` and ``figures/cells`` how many images each has. Levels of a data set:
    ``data.levels=<folder>/levels.parquet``.

    Args:
        data: its OOD sets are the pool.
        clip: see :func:`~ood_lab.tasks.measure.measure`, like all that is not named here.
        extractor: the same.
        folder: run folder.
        features_root: the same.
        metrics: ``draws`` and ``min_count`` are read.
        seed: the same.
        manifest: the same.
        is_main: the same.
        laid: the same.
        k: the same.
        levels: of each axis; edges lie at two quantiles of the pool and evenly between.
        edges: ``edges.json`` of another division, used instead.
        sets: names of the OOD sets that make the pool; None = all.
        report: the same.

    Returns:
        The degrees of the pool with their levels; None on the other ranks.

    Raises:
        UserError: an unknown set, no such edges, degrees that do not spread.
    """
    given = load_edges(edges) if edges else None
    for name in sets or ():
        if name not in data.ood_names:
            raise UserError(
                f"task.sets: '{name}' is no OOD set; {suggestion(name, data.ood_names)}"
            )
    degrees = measure(
        data=data,
        clip=clip,
        extractor=extractor,
        folder=folder,
        features_root=features_root,
        metrics=metrics,
        seed=seed,
        manifest=manifest,
        is_main=is_main,
        laid=laid,
        k=k,
        report=report,
    )
    if degrees is None:
        return None
    pool = degrees[degrees["dataset"].isin(list(sets or data.ood_names))].reset_index(drop=True)
    used = given or pool_edges(pool["semantic"], pool["covariate"], levels=levels)
    pool, counts = divided(pool, used)
    write_division(folder, pool, counts, used)
    manifest |= {"edges": asdict(used), "pool": len(pool)}
    write_cells_figure(folder / "figures", counts, int(metrics["min_count"]))
    Console().print(cells_table(counts, int(metrics["min_count"])))
    log.info("evaluate on these levels with data.levels=%s", folder / "levels.parquet")
    return pool


def divided(pool: pd.DataFrame, edges: Edges) -> tuple[pd.DataFrame, np.ndarray]:
    """The pool with ``semantic_level`` and ``covariate_level`` from 0, and images a cell."""
    semantic, covariate = edges.levels(pool["semantic"], pool["covariate"])
    counts = cell_counts(covariate, semantic, edges.shape)
    return pool.assign(semantic_level=semantic, covariate_level=covariate), counts


def write_division(folder: Path, pool: pd.DataFrame, counts: np.ndarray, edges: Edges) -> None:
    """Writes the table of levels, the edges, the counts and one list a cell."""
    tables.write_table(pool, folder / "levels.parquet")
    save_edges(folder / "edges.json", edges)
    frame = pd.DataFrame(counts).rename_axis("covariate_level", axis=0)
    tables.write_csv(frame.add_prefix("semantic_").reset_index(), folder / "counts.csv")
    place = folder / "cells"
    place.mkdir(exist_ok=True)
    for cell, rows in pool.groupby(list(LEVELS)):
        semantic, covariate = cast(tuple[int, int], cell)
        lines = zip(rows["path"].astype(str), rows["label"].astype(int), strict=True)
        write_imglist(place / cell_file(int(covariate), int(semantic)), lines)
