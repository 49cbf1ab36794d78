"""The table of annotations that every benchmark starts from."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.hints import check_known

Column = Sequence[Any] | np.ndarray | pd.Series
#: Columns of an object's box, pixels from the upper left corner of the image.
BOX = ("box_x", "box_y", "box_width", "box_height")


@dataclass(frozen=True)
class Annotations:
    """Images, the categories that were looked for, and the objects that were found.

    Attributes:
        name: of the data, for folders and tables.
        categories: the label space, in the order of the source; also those that no image has.
        root: folder that the files of the images start from.
        images: one row per image, those without objects included: ``image`` (id in the source),
            ``file`` (relative to ``root``), ``width``, ``height``; where the source has them,
            ``semantic_level``, ``covariate_level``, ``attributes`` (a dict), ``place`` (a city),
            and the lists of names ``absent`` and ``not_exhaustive`` of federated data.
        objects: one row per object: ``image`` (id), ``category`` (name), ``box_x``, ``box_y``,
            ``box_width``, ``box_height`` and ``area`` in pixels, ``crowd`` (a group in one box),
            ``attributes`` (a dict, empty where nothing is known); where the source has it,
            ``semantic_level`` (of this object in this image).
        fields: category and its field (COCO: ``supercategory``), as far as the source groups them.
        domain: ``natural`` or ``driving`` images; "" = the source does not say.
    """

    name: str
    categories: tuple[str, ...]
    root: Path
    images: pd.DataFrame
    objects: pd.DataFrame
    fields: Mapping[str, str] = field(default_factory=dict)
    domain: str = ""

    @property
    def table(self) -> pd.DataFrame:
        """One row per object, with what is known of its image; ``file`` is absolute."""
        merged = self.objects.merge(self.images, on="image", suffixes=("", "_of_image"))
        return merged.assign(file=[str(self.root / file) for file in merged["file"]])

    @cached_property
    def identity(self) -> str:
        """Sha256 (hex) of categories, images and objects, without the pixels."""
        digest = hashlib.sha256(json.dumps(self.categories).encode())
        for frame in (self.images, self.objects):
            plain = frame.copy()
            for column in {"attributes", "absent", "not_exhaustive"} & set(plain.columns):
                plain[column] = [json.dumps(value, sort_keys=True) for value in plain[column]]
            digest.update(" ".join(plain.columns).encode())
            digest.update(pd.util.hash_pandas_object(plain, index=False).to_numpy().tobytes())
        return digest.hexdigest()

    @property
    def scenes(self) -> dict[int | str, str]:
        """The kind of place that an image shows, by its id, where its attributes have one."""
        if "attributes" not in self.images:
            return {}
        pairs = zip(self.images["image"], self.images["attributes"], strict=True)
        return {image: str(facts["place"]) for image, facts in pairs if facts and "place" in facts}

    def only(self, categories: Sequence[str] | None) -> Annotations:
        """The same images with some of the categories, in the order given; None = with all.

        Raises:
            UserError: there is no such category, or one is named twice.
        """
        if categories is None:
            return self
        check_known(categories, self.categories, f"{self.name} has no category '{{name}}'")
        if len(set(categories)) < len(categories):
            raise UserError(f"a category is named twice: {', '.join(categories)}")
        kept = self.objects[self.objects["category"].isin(categories)].reset_index(drop=True)
        kept["category"] = kept["category"].cat.set_categories(list(categories))
        images = self.images.copy()
        for column in {"absent", "not_exhaustive"} & set(images.columns):
            images[column] = [[c for c in names if c in categories] for names in images[column]]
        return replace(self, categories=tuple(categories), images=images, objects=kept)


def images_table(
    image: Column, file: Column, width: Column, height: Column, **more: Column
) -> pd.DataFrame:
    """The frame ``Annotations.images`` from its columns; ``more`` are further ones."""
    sizes = {"width": np.asarray(width, np.int64), "height": np.asarray(height, np.int64)}
    return pd.DataFrame({"image": image, "file": file, **sizes, **more})


def objects_table(
    image: Column,
    category: Column,
    categories: Sequence[str],
    boxes: np.ndarray,
    area: Column | None = None,
    crowd: Column | None = None,
    attributes: Sequence[dict[str, Any]] | None = None,
) -> pd.DataFrame:
    """The frame ``Annotations.objects`` from its columns.

    Args:
        image: id of the image of each object.
        category: position of its category in ``categories``.
        categories: names.
        boxes: ``[N, 4]``: left, top, width, height in pixels.
        area: pixels; None = that of the box, as where it is NaN.
        crowd: a group in one box; None = none is.
        attributes: a dict per object; None = nothing is known of any.
    """
    codes = np.asarray(category, np.int32)
    left, top, width, height = np.asarray(boxes, np.float64).reshape(-1, 4).T
    areas = pd.Series([math.nan] * len(left) if area is None else area, dtype=float)
    return pd.DataFrame(
        {
            "image": image,
            "category": pd.Categorical.from_codes(codes, categories=pd.Index(list(categories))),
            **dict(zip(BOX, (left, top, width, height), strict=True)),
            "area": areas.fillna(pd.Series(width * height)),
            "crowd": np.asarray([False] * len(left) if crowd is None else crowd, bool),
            "attributes": attributes if attributes is not None else [{} for _ in range(len(left))],
        }
    )
