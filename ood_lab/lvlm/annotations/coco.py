"""COCO's instances: one JSON file of images, annotations and categories (arXiv 1405.0312)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath
from ood_lab.lvlm.annotations.annotation_files import (
    absolute,
    check_images,
    frame_of,
    read_json,
)
from ood_lab.lvlm.annotations.annotation_table import (
    Annotations,
    images_table,
    objects_table,
)
from ood_lab.lvlm.annotations.coco_checks import (
    check_boxes,
    check_names,
    check_sizes,
    check_unique,
)
from ood_lab.schema.shift_axes import LEVELS


@dataclass(slots=True)
class _Image:
    id: int | str
    file_name: str
    width: int
    height: int
    semantic_level: int | None = None
    covariate_level: int | None = None
    attributes: dict[str, Any] | None = None


@dataclass(slots=True)
class Instance:
    """An annotated object, as COCO's and LVIS' files have it."""

    image_id: int | str
    category_id: int
    bbox: tuple[float, float, float, float]
    id: int | str | None = None
    area: float | None = None
    iscrowd: bool | int = 0
    attributes: dict[str, Any] = field(default_factory=dict)
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
        found = read_json(file, _Instances, "COCO instances", hint)
        table = frame_of(found.images, "id", "file_name", "width", "height", *LEVELS)
        levels = {name: table[name] for name in _known_levels(table)}
        images = images_table(*(table[name] for name in table.columns[:4]), **levels)
        if any(image.attributes for image in found.images):
            attributes = [image.attributes or {} for image in found.images]
            images["attributes"] = pd.Series(attributes, dtype=object)
        about = found.info if isinstance(found.info, dict) else {}
        domain = "natural" if "COCO" in str(about.get("description")) else ""
        given = {each.name: each.supercategory for each in found.categories}
        fields = {k: v for k, v in given.items() if isinstance(v, str) and v not in ("", "none")}
        names = check_categories(file, found.categories)
        return self._checked(images, names, found.annotations, fields, domain)

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
        known = (root, images, objects, fields, domain)
        return Annotations(self.name, tuple(names.values()), *known).only(self.categories)


def _known_levels(table: pd.DataFrame) -> list[str]:
    """Levels of shift that every row has."""
    return [name for name in LEVELS if name in table and len(table) and table[name].notna().all()]


def check_categories(file: Path, categories: Sequence[Category]) -> dict[int, str]:
    """Names of the categories by id, in their order.

    Raises:
        UserError: an id or name that is used twice; see
            :func:`ood_lab.lvlm.annotations.coco_checks.check_names`.
    """
    ids = [category.id for category in categories]
    names = [category.name for category in categories]
    check_unique(file, "category id", ids, ids)
    check_unique(file, "category name", names, ids)
    check_names(file, names, ids)
    return dict(zip(ids, names, strict=True))


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
    known = images["image"].tolist()
    if not known:
        raise UserError(f"'{file}' lists no image")
    check_unique(file, "image id", known, known)
    check_unique(file, "image", images["file"].tolist(), known)
    numbers = [entry.id for entry in annotations if entry.id is not None]
    check_unique(file, "annotation id", numbers, numbers)
    table = frame_of(annotations, "image_id", "category_id", "area", "iscrowd", "semantic_level")
    rows = {}
    for key, listed, ids in (
        ("category_id", "categories", list(names)),
        ("image_id", "images", known),
    ):
        rows[key] = pd.Index(ids).get_indexer(pd.Index(table[key]))
        if (lost := rows[key] < 0).any():
            row = int(lost.argmax())
            raise UserError(
                f"'{file}': annotation {row + 1} of {len(table)} has {key}="
                f"{table[key].tolist()[row]!r}, which the file does not list under {listed}"
            )
    boxes = np.array([entry.bbox for entry in annotations], np.float64).reshape(-1, 4)
    sizes = images[["width", "height"]].to_numpy(np.int64)[rows["image_id"]]
    check_boxes(file, [entry.id for entry in annotations], boxes, sizes)
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
