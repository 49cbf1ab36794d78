"""Near copies among the images of a run, side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ood_lab.report.rendering.blocks import Picture, Pictures
from ood_lab.report.rendering.misclassified_images import Thumbnails
from ood_lab.report.rendering.table import Head, Table, name_cell, number_cell

TITLE = "Images that look like copies of each other"
#: Images that are shown of one scene.
MOST = 6


def near_copy_pictures(
    examples: Sequence[Mapping[str, Any]], store: Thumbnails, stored: Mapping[str, str]
) -> list[Pictures]:
    """A row of pictures for each example.

    Args:
        examples: ``heading``, and ``images``: set, row and name of each.
        store: small pictures.
        stored: what ``store`` calls a set; images of others are skipped.
    """
    rows = []
    for example in examples:
        shown = [image for image in example["images"] if image[0] in stored][:MOST]
        pictures = [
            Picture(f"{name} ({of})", store.number(stored[of], row)) for of, row, name in shown
        ]
        rows += [Pictures(pictures, example["heading"], few=True)] if len(pictures) > 1 else []
    return rows


def without_copies(rows: Sequence[Mapping[str, Any]]) -> list[Table]:
    """The AUROC with and without images that look like copies of training images.

    Args:
        rows: ``dataset, detector, auroc, without`` each.
    """
    names, numbers = ("detector", "dataset"), ("auroc", "without")
    heads = [*(Head(name, "ascending") for name in names), Head("AUROC"), Head("without copies")]
    cells = [
        [
            *(name_cell(row[name]) for name in names),
            *(number_cell(math.nan if row[key] is None else row[key]) for key in numbers),
        ]
        for row in rows
    ]
    caption = "AUROC with and without images that look like copies of training images"
    return [Table(caption, heads, cells, names=2)] if rows else []
