"""Strips of images on pages: mistakes, what is unusual among ID images, and near copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from ood_lab.common.english import counted
from ood_lab.report.rendering.blocks import Block, Folded, Picture, Pictures, Section, Text
from ood_lab.report.rendering.page import Page
from ood_lab.report.rendering.table import (
    Column,
    Head,
    Table,
    count_cell,
    estimate_cell,
    name_cell,
    names_column,
    number_cell,
    table_of,
)
from ood_lab.report.rendering.thumbnails import Thumbnails, map_of
from ood_lab.schema.image_columns import LEVELS
from ood_lab.schema.results import ID_TEST, Row
from ood_lab.schema.run_record import Facts

#: Images at each end of the mistakes, of the smallest shift, and of one scene.
_MISTAKES, _MARGINAL, _COPIES = 6, 12, 6
#: Scores and p-values of all ID images, in the run folder.
ID_IMAGES = "id_images.csv"
#: The most and the least unusual, each.
EXTREMES = 12
#: The detector that finds them in a run that scores detectors.
UNUSUAL_BY = "knn"
#: Titles of sections of pages.
UNUSUAL = "Unusual ones among your ID images"
#: Images of a set that are shown with their maps.
STRONGEST = 3
COPIES = "Images that look like copies of each other"


def mistake_blocks(
    scores: pd.DataFrame,
    detectors: Sequence[str],
    sets: Sequence[str],
    classes: Sequence[str],
    thumbnails: Thumbnails,
) -> list[Folded]:
    """The most confident mistakes of every detector on the ID test set and the OOD ``sets``.

    ID images that are scored as most OOD, and OOD images scored as most ID, worst first.
    """
    test = scores[scores["dataset"] == ID_TEST]
    ood = scores[scores["dataset"].isin(sets)]

    def strip(detector: str, is_id: bool) -> Pictures:
        rows, reference = (test, ood) if is_id else (ood, test)
        sign, side, against = (-1, "above", "OOD") if is_id else (1, "below", "ID")
        order = np.argsort(sign * rows[detector].to_numpy(), kind="stable")[:_MISTAKES]
        pictures = []
        for row in rows.iloc[order].to_dict("records"):
            value = row[detector]
            share = np.mean(sign * reference[detector] > sign * value)
            label, predicted = (_class(classes, int(row.get(k, -1))) for k in ("label", "pred"))
            what = f"{label}, " * (row["label"] >= 0) + f"predicted {predicted}"
            text = f"{what}; score {value:.4g}, {side} {100 * share:.0f}% of {against}"
            pictures.append(_picture(row, text, thumbnails))
        heading = "ID images scored as most OOD" if is_id else "OOD images scored as most ID"
        return Pictures(pictures, heading)

    return [Folded(name, [strip(name, is_id) for is_id in (True, False)]) for name in detectors]


def pixel_blocks(pixels: pd.DataFrame | None) -> list[Block]:
    """A table of how well maps show what masks show, of rows of the kind ``pixels``."""
    if pixels is None or pixels.empty:
        return []
    rows = [
        [
            *map(name_cell, names),
            *map(estimate_cell, of.to_dict("records")),
            count_cell(of["n_ood"].iloc[0]),
        ]
        for names, of in pixels.groupby(["detector", "dataset"], sort=False)
    ]
    heads = map(Head, ("detector", "dataset", "pixel AUROC %", "AUPRO %", "masks"))
    note = (
        "AUPRO: mean share of the regions of the masks, integrated to an FPR of 0.3 (MVTec AD). "
        "Intervals resample images."
    )
    return [Table("Maps compared with masks", [*heads], rows, names=2, notes=[note], spreads=True)]


def place_blocks(
    scores: pd.DataFrame, legends: Mapping[str, str], thumbnails: Thumbnails
) -> Iterator[Block]:
    """The strongest images of each set by each detector with maps, with their maps."""
    for name, legend in legends.items():
        yield Text(f"{name}: {legend}")
        for dataset, rows in scores.groupby("dataset", sort=False):
            items = [
                thumbnails.picture(
                    f"#{row['index']}: score {row[name]:.4g}",
                    map_of(name, str(dataset)),
                    row["index"],
                )
                for row in rows.nlargest(STRONGEST, name).to_dict("records")
            ]
            yield Pictures(items, str(dataset), few=True)


def marginal_blocks(
    scores: pd.DataFrame, shift: pd.Series, classes: Sequence[str], thumbnails: Thumbnails
) -> list[Block]:
    """The OOD images of the smallest semantic shift, with prediction and MSP (IS-OOD, figure 20).

    Args:
        scores: of the OOD images; ``msp`` may be missing.
        shift: their distance on the semantic axis, or ``semantic_level``; NaN = not known.
        classes: names of the ID classes.
        thumbnails: of the page.
    """
    items, by_level = [], shift.name == LEVELS[0]
    order = shift.reset_index(drop=True).dropna().sort_values(kind="stable")[:_MARGINAL]
    for place, value in order.items():
        row = scores.iloc[place].to_dict()  # type: ignore[call-overload]
        msp = f"; MSP {-row['msp']:.2f}" if "msp" in scores else ""
        where = f"level {value:g}" if by_level else f"distance {value:.3g}"
        text = f"predicted {_class(classes, int(row['pred']))}{msp}; {where}"
        items.append(_picture(row, text, thumbnails))
    how = "level: only levels are known" if by_level else "distance from ID train, as measured"
    return [Text(f"Ordered by semantic {how}."), Pictures(items)] if items else []


def _picture(row: Row, text: str, thumbnails: Thumbnails) -> Picture:
    name, index = row["dataset"], int(row["index"])
    return thumbnails.picture(f"{name} #{index}: {text}", name, index)


def _class(classes: Sequence[str], label: int) -> str:
    if label < 0:
        return "no class"
    return classes[label] if label < len(classes) else f"class {label}"


@dataclass(frozen=True)
class IDImages:
    """The ID images that p-values are ranks among.

    Attributes:
        table: ``path``, and of every detector ``<name>_score`` and ``<name>_p_value``.
        image: the image of a row, by the index of ``table``.
    """

    table: pd.DataFrame
    image: Callable[[int], Image.Image]


def score_text(row: pd.Series, predicted: str, name: str) -> str:
    """Name of the image, its class, p-value and score, and what else is known of it."""
    p, score = row[f"{name}_p_value"], row[f"{name}_score"]
    flag = ", OOD" if row.get(f"{name}_is_ood") else ""
    beyond = row.get("beyond_id")  # ID images have no column of it, nor of being OOD
    beyond = f"; {beyond} than all ID images" if beyond else ""
    start = f"{predicted}; " if predicted else ""
    return f"{Path(row['path']).name}: {start}p = {p:.3g}, score {score:.4g}{flag}{beyond}"


def unusual_id_images(
    images: IDImages, name: str, store: Thumbnails, dataset: str = "id"
) -> Pictures:
    """The ID images with the highest scores of a detector.

    Args:
        images: all of them.
        name: of the detector.
        store: small pictures.
        dataset: what ``store`` calls the ID images.
    """
    pictures = [
        store.picture(score_text(row, "", name), dataset, index)  # type: ignore[arg-type]
        for index, row in images.table.nlargest(EXTREMES, f"{name}_score").iterrows()
    ]
    return Pictures(pictures, f"Broken or wrong files would be among these; {ID_IMAGES} has all")


def write_unusual_images(path: Path, images: IDImages, data: str) -> Path:
    """A page of the most unusual ID images by :data:`UNUSUAL_BY`, for a check of the data."""
    store = Thumbnails(lambda _, row: images.image(row))
    return Page(
        title=f"{data}: {counted(len(images.table), 'ID image')}",
        blocks=[Section(UNUSUAL, [unusual_id_images(images, UNUSUAL_BY, store)])],
        pictures=store,
        definitions=[("p-value", "share of ID images that score as high, itself counted as one")],
    ).write(path)


def near_copy_pictures(
    examples: Sequence[Facts], store: Thumbnails, stored: Mapping[str, str]
) -> list[Pictures]:
    """A row of pictures for each example.

    Args:
        examples: ``heading``, and ``images``: set, row and name of each.
        store: small pictures.
        stored: what ``store`` calls a set; images of others are skipped.
    """
    rows = []
    for example in examples:
        shown = [image for image in example["images"] if image[0] in stored][:_COPIES]
        pictures = [store.picture(f"{name} ({of})", stored[of], row) for of, row, name in shown]
        rows += [Pictures(pictures, example["heading"], few=True)] if len(pictures) > 1 else []
    return rows


def without_copies(rows: Sequence[Facts]) -> list[Table]:
    """The AUROC with and without images that look like copies of training images.

    Args:
        rows: ``dataset, detector, auroc, without`` each.
    """
    if not rows:
        return []
    table = pd.DataFrame(rows).astype({"auroc": float, "without": float})
    columns = [names_column(key, table[key]) for key in ("detector", "dataset")]
    for key, head in (("auroc", "AUROC"), ("without", "without copies")):
        columns.append(Column(Head(head), list(map(number_cell, table[key]))))
    caption = "AUROC with and without images that look like copies of training images"
    return [table_of(caption, columns, names=2)]
