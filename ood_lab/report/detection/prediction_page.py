"""The page of predictions: how new images compare with ID, as a group and one by one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ood_lab.common.english import counted
from ood_lab.common.files import packaged_table
from ood_lab.report.detection.image_strips import (
    COPIES,
    EXTREMES,
    UNUSUAL,
    IDImages,
    near_copy_pictures,
    score_text,
    unusual_id_images,
)
from ood_lab.report.detection.prediction_summary import DETECTORS, FIRST, Judged
from ood_lab.report.figures.densities import draw_densities, limits_of
from ood_lab.report.figures.layout import SOFT, add_legend, panels
from ood_lab.report.figures.scatter import styles_of
from ood_lab.report.rendering.blocks import (
    Block,
    Folded,
    Menu,
    Picture,
    Pictures,
    PlannedFigure,
    Section,
    Text,
)
from ood_lab.report.rendering.page import Page
from ood_lab.report.rendering.table import Cell, Head, Table, name_cell
from ood_lab.report.rendering.thumbnails import LoadImage, Thumbnails, map_of
from ood_lab.schema.arrays import Floats
from ood_lab.schema.run_record import Facts, RunRecord

#: Most flagged images that are shown with their maps.
MAPPED = 60
_FEW = 10  # scores that are drawn one by one, since a density would show a shape that is not there
_ID, _NEW = "ID images", "new images"
#: What the terms of the page mean.
_TERMS: dict[str, str] = packaged_table(__package__, "prediction_terms.yaml")


def write_predictions_page(
    file: Path,
    images: Judged,
    id_scores: Mapping[str, Floats],
    summary: Sequence[Block],
    record: RunRecord,
    load_image: LoadImage,
    command: str,
    id_images: IDImages | None,
    legends: Mapping[str, str],
) -> Path:
    """Writes the page.

    Args:
        file: of the page.
        images: what was found.
        id_scores: of the held-out ID images, by detector.
        summary: what the terminal shows, too.
        record: of the run.
        load_image: ``("images", number of the image)`` → the image.
        command: that repeats the run.
        id_images: None = the detectors were read from files, without them.
        legends: of the maps, by detector; ``load_image`` knows its images with their maps
            (:func:`~ood_lab.report.rendering.thumbnails.map_of`).
    """
    read, shown = images.table[images.table["error"] == ""], images.rows
    some = (
        "" if images.sample is None else f" Drawn: {counted(len(shown), 'image')} at equal steps."
    )
    store = Thumbnails(
        lambda of, row: id_images.image(row) if id_images and of == "id" else load_image(of, row)
    )
    strips = [Folded(name, _extremes(read, name, store, legends.get(name))) for name in id_scores]
    of_id = []
    copies = []
    if id_images:
        unusual = [Folded(n, [unusual_id_images(id_images, n, store)]) for n in id_scores]
        of_id.append(Menu("detector", unusual))
        copies += near_copy_pictures(record.near_copies, store, {str(record.id_split): "id"})
    figure = PlannedFigure(
        "predictions",
        "Scores compared with those of ID images",
        "Higher = more OOD. Images right of the dashed line are flagged." + some,
        partial(_densities, shown, id_scores, record.detectors),
    )
    broken = images.unreadable
    return Page(
        title=f"Predictions for {counted(images.images, 'image')}",
        sentence=f"Images: {record.images.source}" if record.images else "",
        warnings=[
            *(record.images.passed_over if record.images else ()),
            *([f"{counted(broken, 'image')} cannot be read."] if broken else []),
        ],
        blocks=[
            Section("Results", [*summary, Text(command, "command")]),
            Section("Most and least unusual images", [Menu("detector", strips)]),
            Section(UNUSUAL, of_id),
            Section(COPIES, copies),
            Section("Scores", [figure]),
            Section("Images", [_first_rows(images, list(id_scores))]),
        ],
        pictures=store,
        definitions=list(_TERMS.items()),
        record=record,
    ).write(file)


def _extremes(read: pd.DataFrame, name: str, store: Thumbnails, legend: str | None) -> list[Block]:
    """The highest scores of a detector, and the lowest of the other images.

    With a ``legend`` they have their maps, and there are up to :data:`MAPPED` of the flagged ones.
    """
    ordered = read.sort_values(f"{name}_score", ascending=False, kind="stable")
    half = min(EXTREMES, (len(ordered) + 1) // 2)
    if legend:
        half = max(half, min(int(read[f"{name}_is_ood"].sum()), MAPPED))
    dataset = map_of(name, "images") if legend else "images"
    parts = {
        "Most unusual": ordered.head(half),
        "Least unusual": ordered.tail(min(EXTREMES, len(ordered) - half))[::-1],
    }

    none = "no class" if read["predicted"].ne("").any() else ""  # else the network names none

    def picture(row: Any, at: pd.Series) -> Picture:
        return store.picture(score_text(at, at["predicted"] or none, name), dataset, row)

    strips = [
        Pictures([picture(row, at) for row, at in rows.iterrows()], heading)
        for heading, rows in parts.items()
    ]
    return [Text(legend, "note"), *strips] if legend else [*strips]


def _densities(
    read: pd.DataFrame, id_scores: Mapping[str, Floats], facts: Mapping[str, Facts]
) -> Figure:
    """A panel a detector: held-out ID as an area, the images as a line, or as ticks where few."""
    figure, grid = panels(list(id_scores), "", height=1.5, extra=0.9, labels=("score", "density"))
    styles = styles_of([_ID, _NEW], _ID)
    for axes, (name, id_values) in zip(grid, id_scores.items(), strict=True):
        values = {_ID: id_values, _NEW: read[f"{name}_score"].to_numpy(np.float64)}
        limits = limits_of(list(values.values()), outside=0.005)
        shown = values if len(read) >= _FEW else {_ID: id_values}
        draw_densities(axes, shown, styles, limits, labels={key: key for key in values}, filled=_ID)
        if len(read) < _FEW:
            heights = np.full(len(read), axes.get_ylim()[1] / 20)
            axes.vlines(values[_NEW], 0, heights, color=styles[_NEW].color, lw=1.5, label=_NEW)
        if facts[name]["threshold_score"] is not None:
            axes.axvline(facts[name]["threshold_score"], color=SOFT, ls="--", lw=0.8)
    add_legend(figure, grid[:1])
    return figure


def _first_rows(images: Judged, names: list[str]) -> Table:
    shown = names[:DETECTORS]
    heads = [Head("image", "ascending"), Head("class", "ascending")]
    heads += [Head(f"p ({name})", "ascending") for name in shown]
    table = images.table
    folder = os.path.commonpath([os.path.dirname(path) for path in table["path"]])
    rows = []
    for row in table.head(FIRST).to_dict("records"):
        cells = [name_cell(os.path.relpath(row["path"], folder))]
        if row["error"]:
            rows.append([*cells, name_cell(row["error"]), *(Cell("") for _ in shown)])
            continue
        cells.append(name_cell(row["predicted"]))
        for name in shown:
            p = float(row[f"{name}_p_value"])
            cells.append(Cell(f"{p:.3g}{' (OOD)' if row[f'{name}_is_ood'] else ''}", p))
        rows.append(cells)
    more = len(names) > len(shown)
    notes = [f"Of {len(names)} detectors, the first {len(shown)}."] if more else []
    n = images.images
    first = f"The first {FIRST} of {n:,} images" if n > FIRST else "The images"
    return Table(f"{first} in {folder}; {images.file} has everything", heads, rows, notes=notes)
