"""The page of a measurement: semantic and covariate shift of every set from ID."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from ood_lab.common.english import ordinal
from ood_lab.report.rendering.blocks import Folded, Pictures, PlannedFigure, Section, Text
from ood_lab.report.rendering.page import Page
from ood_lab.report.rendering.table import Table
from ood_lab.report.rendering.thumbnails import LoadImage, Thumbnails
from ood_lab.report.shift.shift_figures import (
    ShiftInputs,
    build_shift_figures,
    label_of,
)
from ood_lab.schema.image_columns import AXES
from ood_lab.schema.run_record import RunRecord

_SHOWN = 6  # images at each end
_DEFINITIONS = (
    (
        "D_sem",
        "Semantic shift degree of an image: cosine distance (1 - cosine, from 0 to 2) of the "
        "semantic part of its CLIP features to that of its k-th nearest ID image. What is shown "
        "differs from ID.",
    ),
    (
        "D_cov",
        "Covariate shift degree: the same with the covariate part; its k nearest ID images are "
        "found on their own. How it looks differs from ID.",
    ),
    (
        "LAID",
        "An orthogonal matrix that rotates CLIP features (IS-OOD). The first half holds the "
        "semantic part, the second half the covariate part. It is learned only from texts: "
        "names of objects in templates of styles.",
    ),
    (
        "PCA",
        "Baseline: principal components of text features averaged over styles (semantic) and over "
        "things (covariate).",
    ),
    ("CLIP, undecomposed", "Baseline: the whole feature on both axes, so D_sem = D_cov."),
    (
        "ID test",
        "Measured like the OOD sets, to the same ID images: what no shift looks like. Its degrees "
        "are not 0, because no two images are equal.",
    ),
    (
        "Interval, ≈",
        "95% bootstrap percentile intervals over images; ≈ where the means of neighbours in the "
        "order do not differ (two-sided test with the bootstrap's "
        "standard error, Holm's correction, 5%).",
    ),
)


def write_shift_page(
    folder: Path,
    degrees: pd.DataFrame,
    summary: pd.DataFrame,
    blocks: Sequence[Table | Text],
    load_image: LoadImage,
    record: RunRecord,
    more: Sequence[PlannedFigure] = (),
) -> Path:
    """Writes ``shift.html``, with styles, script and images inside, and ``figures/shift_*``.

    Args:
        folder: run folder.
        degrees: one row per image: ``dataset, index, path``, ``semantic`` and ``covariate``, and
            ``<axis>_pca``, ``<axis>_clip`` by the baselines.
        summary: see :func:`ood_lab.report.shift.shift_tables.summary_tables`.
        blocks: what the terminal shows, too.
        load_image: gives the image of a set by its row; None or an error where it is gone.
        record: ``title``, ``clip``, ``k``, ``id_images`` and ``rulers`` are read; all is shown.
        more: further figures.

    Returns:
        The page.
    """
    clip, k, id_images = record.clip["name"], record.k, record.id_images
    measured = (
        f"Cosine distance to the {ordinal(k)} nearest of {id_images:,} ID images, CLIP {clip}"
    )
    inputs = ShiftInputs(degrees, summary, f"{measured}.", record.rulers)
    store = Thumbnails(load_image)
    examples = [_examples(degrees, name, store, not n) for n, name in enumerate(inputs.names)]
    below = Text("Below each image: its degree and its file.")
    return Page(
        title=record.title,
        sentence=measured,
        blocks=[
            Section("Results", blocks),
            Section("Figures", [*build_shift_figures(inputs), *more]),
            Section("Nearest and farthest images", [below, *examples]),
        ],
        pictures=store,
        definitions=_DEFINITIONS,
        record=record,
    ).write(folder / "shift.html")


def _examples(degrees: pd.DataFrame, name: str, store: Thumbnails, first: bool) -> Folded:
    strips, images = [], degrees[degrees["dataset"] == name]
    for axis in AXES:
        for which, rows in {
            "nearest": images.nsmallest(_SHOWN, axis),
            "farthest": images.nlargest(_SHOWN, axis),
        }.items():
            items = [
                store.picture(f"{row[axis]:.3f} · {Path(row['path']).name}", name, row["index"])
                for row in rows.to_dict("records")
            ]
            strips.append(Pictures(items, f"{axis.capitalize()}: {which}"))
    return Folded(label_of(name), strips, first)
