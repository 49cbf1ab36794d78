"""COCO's instances: one JSON file of images, annotations and categories (arXiv 1405.0312)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ood_lab.axes import LEVELS
from ood_lab.errors import UserError
from ood_lab.lvlm.annotations.files import absolute, check_images, positions, read_json
from ood_lab.lvlm.annotations.table import Annotations, objects_table


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
    area: float | None = None
    iscrowd: bool | int = 0
    attributes: dict[str, Any] = field(default_factory=dict)
    semantic_level: int | None = None


@dataclass(slots=True)
class Category:
    """A category, as COCO's and LVIS' files have it."""

    id: int
    name: str


@dataclass(slots=True)
class _Instances:
    images: list[_Image]
    annotations: list[Instance]
    categories: list[Category]


@dataclass(frozen=True)
class CocoAnnotations:
    """COCO instances, or any file in their format.

    Layout: ``file`` is ``instances_val2017.json``, say, and ``images`` the folder ``val2017`` from
    which its ``file_name`` start. Beyond COCO's own fields, ``attributes`` of an annotation or an
    image are kept (those of CVAT and of the builtin scenes), ``semantic_level`` and
    ``covariate_level`` of an image, and ``semantic_level`` of an annotation. A missing ``area`` is
    that of the box.

    pycocotools would read the same file into dictionaries, outlines and all, in several times the
    time and memory, and check nothing of it.

    Args:
        file: the JSON file.
        images: folder of the images.
        categories: names of those to keep, in this order; None = all.
        name: of the data, for folders and tables.
    """

    file: str | os.PathLike[str]
    images: str | os.PathLike[str]
    categories: Sequence[str] | None = None
    name: str = "coco"

    def read(self) -> Annotations:
        """Reads and checks the file, and that every image is there.

        Raises:
            UserError: a missing, broken or foreign file, a missing image, an annotation of an
                unknown image or category, a category that is not there.
        """
        file, root = absolute(self.file), absolute(self.images)
        hint = "other formats are annotations=lvis, nuscenes, cityscapes"
        found = read_json(file, _Instances, "COCO instances", hint)
        images = pd.DataFrame(
            {
                "image": [image.id for image in found.images],
                "file": [image.file_name for image in found.images],
                "width": np.array([image.width for image in found.images], np.int64),
                "height": np.array([image.height for image in found.images], np.int64),
                **_known_levels(found.images, *LEVELS),
            }
        )
        if any(image.attributes for image in found.images):
            attributes = [image.attributes or {} for image in found.images]
            images["attributes"] = pd.Series(attributes, dtype=object)
        names = {category.id: category.name for category in found.categories}
        objects = instances_table(file, found.annotations, list(images["image"]), names)
        check_images(root, list(images["file"]), "annotations.images")
        whole = Annotations(self.name, tuple(names.values()), root, images, objects)
        return whole if self.categories is None else whole.only(self.categories)


def _known_levels(entries: Sequence[_Image] | Sequence[Instance], *names: str) -> dict[str, Any]:
    """Levels of shift, where every entry has them."""
    columns = {name: [getattr(entry, name) for entry in entries] for name in names}
    return {
        name: np.array(values, np.int64)
        for name, values in columns.items()
        if values and None not in values
    }


def instances_table(
    file: Path,
    annotations: Sequence[Instance],
    images: Sequence[int | str],
    names: dict[int, str],
) -> pd.DataFrame:
    """The objects of a file in COCO's or LVIS' format.

    Args:
        file: for messages.
        annotations: the objects.
        images: ids of the file's images.
        names: of the categories, by id, in their order.

    Raises:
        UserError: no image, an id or name that is used twice, an annotation of an unknown image
            or category.
    """
    if not images:
        raise UserError(f"'{file}' lists no image")
    for what, values in (("image id", images), ("category name", list(names.values()))):
        if len(set(values)) < len(values):
            twice, _ = Counter(values).most_common(1)[0]
            raise UserError(f"'{file}' has the {what} {twice!r} twice")
    category = positions([entry.category_id for entry in annotations], list(names))
    image_ids = [entry.image_id for entry in annotations]
    for what, found, ids in (
        ("category_id", category, [entry.category_id for entry in annotations]),
        ("image_id", positions(image_ids, images), image_ids),
    ):
        if -1 in found:
            row = found.index(-1)
            raise UserError(
                f"'{file}': annotation {row + 1} of {len(found)} has {what}={ids[row]!r}, which "
                f"the file does not list under {'categories' if 'cat' in what else 'images'}"
            )
    boxes = np.array([entry.bbox for entry in annotations], np.float64).reshape(-1, 4)
    area = [a.bbox[2] * a.bbox[3] if a.area is None else a.area for a in annotations]
    crowd = np.array([entry.iscrowd for entry in annotations], bool)
    attributes = [entry.attributes for entry in annotations]
    table = objects_table(image_ids, category, list(names.values()), boxes, area, crowd, attributes)
    return table.assign(**_known_levels(annotations, "semantic_level"))
