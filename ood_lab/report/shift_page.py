"""The page of a measurement: how far every set is from ID, in meaning and in looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ood_lab.axes import AXES, Axis
from ood_lab.report.figures.drawing import PlannedFigure, write_all
from ood_lab.report.html_tables import Cell, Head, HtmlTable, flatten
from ood_lab.report.mistakes import Thumbnails
from ood_lab.report.nearest_farthest import nearest_farthest
from ood_lab.report.page import FigureFile, embed, page_template, save_page
from ood_lab.report.pictures import LoadImage, Pictures
from ood_lab.report.protocol import finding_sentences
from ood_lab.report.shift_figures import (
    ShiftInputs,
    build_shift_figures,
    image_sheet,
    label_of,
)
from ood_lab.report.shift_tables import (
    DEGREE,
    ID_TEST,
    SAME,
    SAME_NOTE,
    rows_of,
    same_as_next,
)
from ood_lab.words import counted

_SHOWN = 6  # images at each end
#: Files of a run folder that the page links to, where they are.
_DOWNLOADS = ("shift.csv", "degrees.parquet", "counts.csv", "levels.parquet", "config.yaml")
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
        "An orthogonal matrix learned from texts alone, the names of things in templates of "
        "styles, that turns CLIP features so that the first half carries what is shown and the "
        "second half how it looks (IS-OOD).",
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


class Example(NamedTuple):
    """One image; ``thumbnail`` is the number of its picture, None where there is none."""

    text: str
    thumbnail: int | None


def write_shift_page(
    folder: Path,
    degrees: pd.DataFrame,
    summary: pd.DataFrame,
    load_image: LoadImage,
    manifest: Mapping[str, Any],
    more: Sequence[FigureFile] = (),
) -> Path:
    """Writes ``shift.html``, with styles, script and images inside, and ``figures/shift_*``.

    Args:
        folder: run folder.
        degrees: one row per image: ``dataset, index, path``, ``semantic`` and ``covariate``, and
            ``<axis>_pca``, ``<axis>_clip`` by the baselines.
        summary: see :func:`ood_lab.report.shift_tables.summary_table`.
        load_image: gives the image of a set by its row; None or an error where it is gone.
        manifest: ``title``, ``clip``, ``k`` and ``id_images`` are read; all of it is shown.
        more: figures that are written already, to be shown too.

    Returns:
        The page.
    """
    clip, k, id_images = manifest["clip"]["name"], manifest["k"], manifest["id_images"]
    measured = f"Cosine distance to the {_nth(k)} nearest of {id_images:,} ID images, CLIP {clip}"
    inputs = ShiftInputs(degrees, summary, f"{measured}.")
    pictures = Pictures(load_image)
    figures, sheets = _write_figures(folder / "figures", inputs, pictures)
    store = Thumbnails(pictures)
    examples = [_examples(degrees, name, store) for name in inputs.names]
    path = folder / "shift.html"
    page = page_template("shift.html.j2").render(
        title=manifest["title"],
        sentence=measured,
        facts=_facts(summary, manifest),
        warnings=[
            *finding_sentences(manifest.get("findings", ())),
            *manifest.get("warnings", []),
        ],
        note=SAME_NOTE,
        tables=[summary_html(summary, axis) for axis in AXES],
        figures=[embed(figure, folder) for figure in (*figures, *more)],
        sheets=[(axis, embed(file, folder)["files"]) for axis, file in sheets.items()],
        examples=examples,
        thumbnails=store.uris,
        definitions=_DEFINITIONS,
        manifest=flatten({k: v for k, v in manifest.items() if k != "findings"}),
        downloads=[name for name in _DOWNLOADS if (folder / name).exists()],
    )
    pictures.warn(path.name)
    return save_page(path, page)


def summary_html(summary: pd.DataFrame, axis: Axis) -> HtmlTable:
    """One axis of the summary as a sortable table."""
    rows = rows_of(summary, axis)
    heads = [
        Head("set", "ascending"),
        Head(f"mean {DEGREE[axis]}"),
        Head("95% interval"),
        Head("≈", "descending"),
        Head("median"),
        Head("95% interval"),
        Head("n"),
    ]
    cells = []
    for row, same in zip(rows.to_dict("records"), same_as_next(rows), strict=True):
        name = str(row["set"])
        mark = Cell(SAME, 1) if same else Cell("", 0)
        first = Cell(label_of(name), label_of(name), quiet=name == ID_TEST)
        mean, median = _number(row, "mean"), _number(row, "median")
        cells.append([first, *mean, mark, *median, Cell(f"{row['n']:,}", row["n"])])
    return HtmlTable(f"{axis.capitalize()} shift", heads, cells)


def _number(row: Mapping[Any, Any], name: str) -> list[Cell]:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return [Cell(f"{row[name]:.3f}", row[name]), Cell(f"{low:.3f} to {high:.3f}", low)]


def _facts(summary: pd.DataFrame, manifest: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Name, value and remark of the numbers at the top of the page."""
    facts = []
    for axis in AXES:
        rows = rows_of(summary, axis)
        farthest = rows[rows["set"] != ID_TEST].iloc[-1]
        remark = f"mean {DEGREE[axis]} {farthest['mean']:.3f}"
        test = rows[rows["set"] == ID_TEST]
        if len(test):
            remark += f"; ID test {test['mean'].iloc[0]:.3f}"
        facts.append((f"Largest {axis} shift", str(farthest["set"]), remark))
    sets = summary[(summary["axis"] == AXES[0]) & (summary["set"] != ID_TEST)]
    facts.append(("OOD sets", str(len(sets)), counted(int(sets["n"].sum()), "image")))
    facts.append(("ID images", f"{manifest['id_images']:,}", f"k = {manifest['k']}"))
    facts.append(("CLIP", str(manifest["clip"]["name"]), "split by LAID"))
    return facts


def _write_figures(
    folder: Path, inputs: ShiftInputs, pictures: Pictures
) -> tuple[list[FigureFile], dict[Axis, FigureFile]]:
    """The figures of the page, and one contact sheet per axis."""
    sheets = {axis: _sheet(inputs, axis, pictures) for axis in AXES}
    files = {axis: write_all(folder, [sheet]) for axis, sheet in sheets.items()}
    figures = write_all(folder, list(build_shift_figures(inputs)))
    return figures, {axis: found[0] for axis, found in files.items() if found}


def _sheet(inputs: ShiftInputs, axis: Axis, pictures: Pictures) -> PlannedFigure:
    names = [str(name) for name in rows_of(inputs.summary, axis)["set"]]
    return PlannedFigure(
        f"shift_images_{axis}",
        f"Nearest and farthest: {axis}",
        f"Images of each set by {axis} shift.",
        partial(image_sheet, inputs.degrees, names, axis, pictures, inputs.footer),
    )


class Examples(NamedTuple):
    """The strips of one set: heading and images each."""

    name: str
    strips: Sequence[tuple[str, Sequence[Example]]]


def _examples(degrees: pd.DataFrame, name: str, store: Thumbnails) -> Examples:
    strips = []
    for axis in AXES:
        found = nearest_farthest(degrees, name, axis, _SHOWN)
        for which, rows in (("nearest", found.nearest), ("farthest", found.farthest)):
            items = [
                Example(
                    f"{row[axis]:.3f} · {Path(str(row['path'])).name}",
                    store.number(name, int(row["index"])),
                )
                for row in rows.to_dict("records")
            ]
            strips.append((f"{axis.capitalize()}: {which}", items))
    return Examples(label_of(name), strips)


def _nth(k: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th, ..."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(k % 10, "th")
    return f"{k}{'th' if k % 100 in (11, 12, 13) else ending}"
