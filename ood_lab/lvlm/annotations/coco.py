"""COCO's instances: one JSON file of images, annotations and categories (arXiv 1405.0312)."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from ood_lab.common.arguments import Fields
from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath
from ood_lab.data.sources.image_files import is_upright
from ood_lab.lvlm.annotations.annotation_table import (
    Annotations,
    absolute,
    check_images,
    frame_of,
    images_table,
    objects_table,
    read_json,
)
from ood_lab.schema.arrays import Floats, Ints, positions, spaced_rows
from ood_lab.schema.image_columns import LEVELS

#: Pixels that a box may reach beyond its image. COCO's and LVIS' coordinates are those of outlines,
#: rounded to two decimals, and other tools round to whole pixels on either side.
OVERHANG = 2.0
#: Images whose size is read from their files, spread evenly over a larger list.
_MEASURED = 5000


def check_unique(file: Path, what: str, values: Sequence[Any]) -> None:
    """Rejects a value that two entries have.

    Args:
        file: for the message.
        what: the values are.
        values: of all entries.

    Raises:
        UserError: with the value.
    """
    twice = pd.Series(values).duplicated().to_numpy()
    if twice.any():
        raise UserError(f"'{file}' has the {what} {values[int(twice.argmax())]!r} twice")


def check_categories(file: Path, categories: Sequence[Category]) -> dict[int, str]:
    """Names of the categories by id, in their order.

    Names that differ only in case, blanks, hyphens and underscores count as the same.

    Raises:
        UserError: an id that is used twice; an empty name, one with a line break or another
            control character, or two that are the same, with their ids.
    """
    ids = [category.id for category in categories]
    names = [category.name for category in categories]
    check_unique(file, "category id", ids)
    first_rows: dict[str, int] = {}
    for row, name in enumerate(names):
        broken = any(unicodedata.category(letter) in ("Cc", "Zl", "Zp") for letter in name)
        if broken or not name.strip():
            raise UserError(
                f"'{file}': the category with id {ids[row]} has no name on one line: {name!r}"
            )
        plain = " ".join(unicodedata.normalize("NFKC", name).casefold().replace("-", " ").split())
        first = first_rows.setdefault(plain.replace("_", " "), row)
        if first != row:
            raise UserError(
                f"'{file}': the categories with ids {ids[first]} and {ids[row]} have the names "
                f"{names[first]!r} and {name!r}, which no question can tell apart: merge them"
            )
    return dict(zip(ids, names, strict=True))


def check_boxes(file: Path, boxes: Floats, sizes: Ints) -> None:
    """Rejects boxes that are none, or not of their image.

    A box may reach :data:`OVERHANG` pixels beyond its image, and have no width or height: COCO's
    train2017 has two without height (annotations 918 and 2206849).

    Args:
        file: for the message.
        boxes: ``[N, 4]``: left, top, width, height in pixels.
        sizes: ``[N, 2]``: width and height of the image of each.

    Raises:
        UserError: a coordinate that is not finite, a negative width or height, or a box that
            reaches out of its image, with the number of the annotation.
    """
    start, extent = boxes[:, :2], boxes[:, 2:]
    # Not a number compares as false.
    inside = (start >= -OVERHANG) & (extent >= 0) & (start + extent <= sizes + OVERHANG)
    wrong = ~inside.all(axis=1)
    if wrong.any():
        row = int(wrong.argmax())
        width, height = sizes[row]
        raise UserError(
            f"'{file}': {int(wrong.sum()):,} of {len(boxes):,} annotations have a box that is not "
            "within its image: give left, top, width, height; annotation "
            f"{row + 1} of {len(boxes)} has {boxes[row].tolist()} in an image of {width} x "
            f"{height} pixels"
        )


def check_sizes(file: Path, root: Path, images: pd.DataFrame) -> None:
    """Rejects images that are of another size than the file says.

    The files of at most 5,000 images are looked at, evenly spread. A size that is that of the
    image as its EXIF orientation turns it is right, too. A file that cannot be read passes: who
    opens it says so.

    Args:
        file: for the message.
        root: folder of the images.
        images: ``image`` (id), ``file``, ``width``, ``height``.

    Raises:
        UserError: with the id of the image and both sizes.
    """
    rows = spaced_rows(len(images), _MEASURED)
    looked = images.iloc[rows]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(_sizes, [root / name for name in looked["file"]]))
    stated = list(zip(looked["width"], looked["height"], strict=True))
    wrong = [n for n, measured in enumerate(results) if measured and stated[n] not in measured]
    if wrong:
        first, (width, height) = looked.iloc[wrong[0]], results[wrong[0]][0]
        raise UserError(
            f"'{file}': {len(wrong):,} of {len(looked):,} images have another size than it says; "
            f"'{first['file']}' (id {first['image']}) is {width} x {height} pixels, not "
            f"{first['width']} x {first['height']}: scale the boxes with the images, or give "
            "the images that were annotated"
        )


def _sizes(path: Path) -> list[tuple[int, int]]:
    """Size of the image as stored and as turned; none where the file cannot be read."""
    try:
        with Image.open(path) as image:
            return [image.size] if is_upright(image) else [image.size, image.size[::-1]]
    except (OSError, ValueError, SyntaxError):
        return []


@dataclass(slots=True)
class _Image:
    id: int | str
    file_name: str
    width: int
    height: int
    semantic_level: int | None = None
    covariate_level: int | None = None
    attributes: Fields | None = None


@dataclass(slots=True)
class Instance:
    """An annotated object, as COCO's and LVIS' files have it."""

    image_id: int | str
    category_id: int
    bbox: tuple[float, float, float, float]
    id: int | str | None = None
    area: float | None = None
    iscrowd: bool | int = 0
    attributes: Fields = field(default_factory=dict)
    semantic_level: int | None = None


@dataclass(slots=True)
class Category:
    """A category, as COCO's and LVIS' files have it."""

    id: int
    name: str
    supercategory: Any = None


@dataclass(slots=True)
class _Instances:
    images: list[_Image]
    annotations: list[Instance]
    categories: list[Category]
    info: Any = None


@dataclass(frozen=True)
class CocoAnnotations:
    """COCO instances, or any file in their format.

    Layout: ``file`` is ``instances_val2017.json``, say, and ``images`` the folder ``val2017`` from
    which its ``file_name`` start. Beyond COCO's own fields, ``attributes`` of an annotation or an
    image are kept (those of CVAT and of the builtin scenes), ``semantic_level`` and
    ``covariate_level`` of an image, and ``semantic_level`` of an annotation. A missing ``area`` is
    that of the box. The field of a category is its ``supercategory``; images are ``natural`` where
    ``info.description`` names COCO.

    pycocotools would read the same file into dictionaries, outlines and all, in several times the
    time and memory, and check nothing of it.

    Args:
        file: the JSON file.
        images: folder of the images.
        categories: names of those to keep, in this order; None = all.
        name: of the data, for folders and tables.
    """

    file: StrPath
    images: StrPath
    categories: Sequence[str] | None = None
    name: str = "coco"

    def read(self) -> Annotations:
        """Reads and checks the file, and that every image is there.

        Raises:
            UserError: a missing, broken or foreign file, a missing image, an image of another
                size, a category that is not there; see :func:`instances_table`.
        """
        file = absolute(self.file)
        hint = "other formats are annotations=lvis, nuscenes, cityscapes"
        results = read_json(file, _Instances, "COCO instances", hint)
        table = frame_of(results.images, ["id", "file_name", "width", "height", *LEVELS])
        levels = {name: table[name] for name in _known_levels(table)}
        images = images_table(
            table["id"], table["file_name"], table["width"], table["height"], **levels
        )
        if any(image.attributes for image in results.images):
            attributes = [image.attributes or {} for image in results.images]
            images["attributes"] = pd.Series(attributes, dtype=object)
        about = results.info if isinstance(results.info, dict) else {}
        domain = "natural" if "COCO" in str(about.get("description")) else ""
        groups = {item.name: item.supercategory for item in results.categories}
        fields = {k: v for k, v in groups.items() if isinstance(v, str) and v not in ("", "none")}
        names = check_categories(file, results.categories)
        return self._checked(images, names, results.annotations, fields, domain)

    def _checked(
        self,
        images: pd.DataFrame,
        names: dict[int, str],
        instances: Sequence[Instance],
        fields: dict[str, str],
        domain: str,
    ) -> Annotations:
        """The chosen categories of what was read, once it fits together and to the images."""
        file, root = absolute(self.file), absolute(self.images)
        objects = instances_table(file, instances, images, names)
        check_images(root, list(images["file"]), "annotations.images")
        check_sizes(file, root, images)
        labels = tuple(names.values())
        return Annotations(self.name, labels, root, images, objects, fields, domain).only(
            self.categories
        )


def _known_levels(table: pd.DataFrame) -> list[str]:
    """Levels of shift that every row has."""
    return [name for name in LEVELS if name in table and len(table) and table[name].notna().all()]


def instances_table(
    file: Path, annotations: Sequence[Instance], images: pd.DataFrame, names: dict[int, str]
) -> pd.DataFrame:
    """The objects of a file in COCO's or LVIS' format.

    Args:
        file: for messages.
        annotations: the objects.
        images: ``image`` (id), ``file``, ``width``, ``height`` of the file's images.
        names: of the categories, by id, in their order.

    Raises:
        UserError: no image, an id or a file of an image that is used twice, an annotation of an
            unknown image or category, a box that is none or not of its image.
    """
    image_ids = images["image"].tolist()
    if not image_ids:
        raise UserError(f"'{file}' lists no image")
    check_unique(file, "image id", image_ids)
    check_unique(file, "image", images["file"].tolist())
    numbers = [entry.id for entry in annotations if entry.id is not None]
    check_unique(file, "annotation id", numbers)
    table = frame_of(annotations, ["image_id", "category_id", "area", "iscrowd", "semantic_level"])
    rows = {}
    for key, listed, ids in (
        ("category_id", "categories", list(names)),
        ("image_id", "images", image_ids),
    ):
        rows[key] = positions(ids, table[key])
        if (lost := rows[key] < 0).any():
            row = int(lost.argmax())
            raise UserError(
                f"'{file}': annotation {row + 1} of {len(table)} has {key}="
                f"{table[key].tolist()[row]!r}, which the file does not list under {listed}"
            )
    boxes = np.array([entry.bbox for entry in annotations], np.float64).reshape(-1, 4)
    sizes = images[["width", "height"]].to_numpy(np.int64)[rows["image_id"]]
    check_boxes(file, boxes, sizes)
    objects = objects_table(
        table["image_id"],
        rows["category_id"],
        list(names.values()),
        boxes,
        table["area"],
        table["iscrowd"],
        [entry.attributes for entry in annotations],
    )
    return objects.assign(**{name: table[name].astype(np.int64) for name in _known_levels(table)})
