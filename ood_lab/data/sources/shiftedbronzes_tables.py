"""The annotation tables of ShiftedBronzes."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.hints import check_known, missing_path
from ood_lab.common.unicode_names import existing
from ood_lab.data.dataset import ID_SPLITS, UNKNOWN
from ood_lab.data.sources.table_columns import read_texts

#: Folder of the photographs, which are in distribution.
COLOUR = "colour"
_REQUIRED = ("path", "category", "era", "period")


def read_annotations(root: Path) -> pd.DataFrame:
    """Reads ``annotations.csv``: ``path, category, era, period`` and, where known, ``shape``.

    Returns:
        Text columns ``image`` (path below ``root``, with ``/``), ``path`` (absolute), ``kind``
        (first folder of ``image``), ``category, era, period, shape`` (``-1`` = unknown shape).

    Raises:
        UserError: a missing column, an empty cell, an image twice, images that are not there.
    """
    file = root / "annotations.csv"
    table = read_texts(file, _REQUIRED, _REQUIRED)
    image = table["path"].str.replace("\\", "/").str.removeprefix("./")
    if image.duplicated().any():
        raise UserError(f"'{file}' lists '{image[image.duplicated()].iloc[0]}' twice")
    path = [existing(str(root / name)) for name in image]
    absent = [place for place in path if not Path(place).is_file()]
    if absent:
        raise UserError(
            f"{len(absent):,} of {len(path):,} images of '{file}' are missing; first: "
            f"{missing_path(absent[0])}"
        )
    shape = table["shape"].replace("", str(UNKNOWN)) if "shape" in table else str(UNKNOWN)
    images = pd.DataFrame({"image": image, "path": path, "kind": image.str.split("/").str[0]})
    return images.join(table[["category", "era", "period"]]).assign(shape=shape)


def boxes_of(root: Path, images: pd.Series) -> pd.DataFrame:
    """Reads ``boxes.csv``: a row per box, ``path, characteristic``; coordinates are not read.

    Boxes on other images are skipped.

    Args:
        root: folder of the data set.
        images: paths below ``root``.

    Returns:
        These columns, without rows where there is no file.
    """
    file = root / "boxes.csv"
    if not file.exists():
        return pd.DataFrame({"path": [], "characteristic": []}, dtype=str)
    boxes = read_texts(file, ("path", "characteristic"), ())
    boxes["path"] = boxes["path"].str.replace("\\", "/").str.removeprefix("./")
    return boxes[boxes["path"].isin(set(images)) & (boxes["characteristic"] != "")]


def read_boxes(root: Path, images: pd.Series) -> pd.DataFrame:
    """Which characteristics each image has, see :func:`boxes_of`.

    A characteristic is present (1) where a box of its name is on the image.

    Returns:
        One row per image, columns ``attribute_<characteristic> float32`` (sorted); none without
        the file.
    """
    file = root / "boxes.csv"
    if not file.exists():
        return pd.DataFrame(index=images.index)
    boxes = boxes_of(root, images)
    if boxes.empty:
        raise UserError(f"'{file}' names no image below {COLOUR}/: its paths start from '{root}'")
    present = pd.crosstab(boxes["path"], boxes["characteristic"]).clip(upper=1)
    present = present.reindex(images, fill_value=0).astype("float32").set_index(images.index)
    return present.add_prefix("attribute_").rename_axis(columns=None)


def read_splits(folder: Path, images: pd.Series) -> dict[str, list[int]]:
    """Reads the split of an earlier run: ``train.csv``, ``val.csv``, ``test.csv``.

    Images are found by their column ``image``, so the data may have moved since.

    Args:
        folder: ``<run>/splits``.
        images: paths below ``root``, one per row.

    Returns:
        Row numbers of each split.

    Raises:
        UserError: a missing file or column, an unknown image, an image in two places.
    """
    row_of = {image: row for row, image in enumerate(images)}
    seen: dict[str, str] = {}
    rows: dict[str, list[int]] = {}
    for split in ID_SPLITS:
        file = folder / f"{split}.csv"
        if not file.is_file():
            raise missing_path(file)
        rows[split] = []
        listed = read_texts(file, ("image",), ())["image"]
        check_known(listed, row_of, f"'{file}' lists '{{name}}', which is not in annotations.csv")
        for image in listed:
            if image in seen:
                raise UserError(f"'{image}' is in {seen[image]} and in {split} of '{folder}'")
            seen[image] = split
            rows[split].append(row_of[image])
    return rows
