"""How far every image is from the ID set, in meaning and in looks."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import pandas as pd
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from ood_lab.clip import ClipModel
from ood_lab.data.datamodule import OODDataModule
from ood_lab.report.shift_page import write_shift_page
from ood_lab.report.shift_tables import summary_table
from ood_lab.shift import Decomposition, ShiftMeter, summarise_degrees
from ood_lab.tasks import tables
from ood_lab.tasks.agreement import agreement, agreement_table
from ood_lab.tasks.banks import require_ood
from ood_lab.tasks.referee import clip_features, load_referee

log = logging.getLogger(__name__)
AXES = ("semantic", "covariate")


def measure(
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
    report: bool = True,
) -> pd.DataFrame | None:
    """Writes ``degrees.parquet``, ``shift.csv`` and ``shift.html``.

    Where a set brings known levels along, ``agreement.csv`` says how well the degrees rank them.
    ``D_sem`` and ``D_cov`` of an image are the cosine distances of the semantic and covariate part
    of its CLIP features to those of its k-th nearest ID training image (IS-OOD, section 3). ID
    test is measured like the OOD sets: it says what no shift looks like.

    Args:
        data: ID train is what distances are measured to.
        clip: makes the features.
        extractor: Trainer whose ``predict`` runs the CLIP.
        folder: run folder.
        features_root: folder of the feature banks.
        metrics: ``draws`` of the bootstrap is read.
        seed: of the bootstrap.
        manifest: filled with what made the numbers.
        is_main: False on the other ranks, which only extract.
        laid: folder with the matrices, see :func:`load_referee`.
        k: neighbour; None = that of the matrix (10).
        report: write figures and ``shift.html`` too.

    Returns:
        One row an image: ``dataset, index, path, label``, ``semantic`` and ``covariate`` by LAID,
        and ``<axis>_pca``, ``<axis>_clip`` by the baselines; None on the other ranks.

    Raises:
        UserError: no OOD set, no LAID matrix for this CLIP, fewer ID images than k.
    """
    require_ood(data)
    referee = load_referee(clip, laid)
    splits = ["train", "test", *data.ood_names]
    features = clip_features(data, clip, splits, extractor, features_root)
    if not is_main:
        return None
    degrees = measured(data, features, referee, k)
    tables.write_table(degrees, folder / "degrees.parquet")
    summary = summarised(degrees, int(metrics["draws"]), seed)
    tables.write_csv(summary, folder / "shift.csv")
    main = referee[0]
    manifest |= {
        "clip": dict(main.clip),
        "laid": dict(main.details),
        "k": k or main.k,
        "id_images": len(features["train"]),
        "data": {name: split.identity for name, split in data.splits.items()},
    }
    if clip.name == "tiny" and data.name not in ("vessels", "vessels_longtail", "vessels_world"):
        log.warning(
            "the shipped CLIP knows only the builtin vessels: on these images its distances mean "
            "nothing; choose a real one with clip=..."
        )
    if report:
        write_shift_page(folder, degrees, summary, data, manifest)
    console = Console()
    console.print(summary_table(summary))
    if len(known := agreement(degrees, data)):
        tables.write_csv(known, folder / "agreement.csv")
        console.print(agreement_table(known))
    log.info("every image: %s", folder / "degrees.parquet")
    return degrees


def measured(
    data: OODDataModule,
    features: Mapping[str, Tensor],
    referee: Sequence[Decomposition],
    k: int | None,
) -> pd.DataFrame:
    """Shift degrees of every set but train, by every decomposition."""
    names = [name for name in features if name != "train"]
    parts = {
        name: data.splits[name].table[["path", "label"]].assign(dataset=name) for name in names
    }
    steps = len(names) * len(referee)
    with Progress(transient=True) as progress:
        bar = progress.add_task("Measuring", total=steps)
        for decomposition in referee:
            meter = ShiftMeter(decomposition, features["train"], k)
            suffix = "" if decomposition is referee[0] else f"_{decomposition.name}"
            for name in names:
                found = meter(features[name])
                for axis in AXES:
                    parts[name][f"{axis}{suffix}"] = getattr(found, axis).double().numpy()
                progress.advance(bar)
    rows = [part.reset_index(names="index") for part in parts.values()]
    table = pd.concat(rows, ignore_index=True)
    return table[["dataset", "index", *[c for c in table if c not in ("dataset", "index")]]]


def summarised(degrees: pd.DataFrame, draws: int, seed: int) -> pd.DataFrame:
    """Mean and median of every set on both axes, see :func:`summarise_degrees`."""
    parts = []
    for axis in AXES:
        sets = {str(name): rows[axis].to_numpy() for name, rows in degrees.groupby("dataset")}
        parts.append(summarise_degrees(sets, draws=draws, seed=seed).assign(axis=axis))
    return pd.concat(parts, ignore_index=True)
