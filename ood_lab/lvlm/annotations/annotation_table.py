"""The table of annotations that every benchmark starts from, and files checked for it."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from ood_lab.common.arguments import Fields
from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.files import StrPath, packaged_table
from ood_lab.common.grouping import grouped
from ood_lab.common.hints import check_known, missing_path
from ood_lab.common.installed_packages import need
from ood_lab.common.unicode_names import remark

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
            ``semantic_level``, ``covariate_level``, ``attributes`` (a dict) and ``place`` (a city).
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

    @cached_property
    def identity(self) -> str:
        """Sha256 (hex) of categories, images and objects, without the pixels."""
        digest = hashlib.sha256(json.dumps(self.categories).encode())
        for frame in (self.images, self.objects):
            plain = frame.copy()
            if "attributes" in plain:
                texts = [json.dumps(value, sort_keys=True) for value in plain["attributes"]]
                plain["attributes"] = texts
            digest.update(" ".join(plain.columns).encode())
            digest.update(pd.util.hash_pandas_object(plain, index=False).to_numpy().tobytes())
        return digest.hexdigest()

    @property
    def paths(self) -> dict[int | str, Path]:
        """The file of each image, by its id, in their order."""
        files = zip(self.images["image"], self.images["file"], strict=True)
        return {image: self.root / file for image, file in files}

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
        return replace(self, categories=tuple(categories), objects=kept)


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
    area: Column | float = math.nan,
    crowd: Column | bool = False,
    attributes: Sequence[Fields] | None = None,
) -> pd.DataFrame:
    """The frame ``Annotations.objects`` from its columns.

    Args:
        image: id of the image of each object.
        category: position of its category in ``categories``.
        categories: names.
        boxes: ``[N, 4]``: left, top, width, height in pixels.
        area: pixels; NaN = that of the box.
        crowd: a group in one box.
        attributes: a dict per object; None = nothing is known of any.
    """
    codes = np.asarray(category, np.int32)
    left, top, width, height = np.asarray(boxes, np.float64).reshape(-1, 4).T
    areas, crowds = (pd.Series(column, range(len(left)), float) for column in (area, crowd))
    return pd.DataFrame(
        {
            "image": image,
            "category": pd.Categorical.from_codes(codes, categories=pd.Index(list(categories))),
            **dict(zip(BOX, (left, top, width, height), strict=True)),
            "area": areas.fillna(pd.Series(width * height)),
            "crowd": crowds.astype(bool),
            "attributes": attributes if attributes is not None else [{} for _ in range(len(left))],
        }
    )


T = TypeVar("T")
#: The labels of data sets that OODBench keeps, in its words or by group, and those it leaves out.
LABELS = packaged_table(__package__, "labels.yaml")


def absolute(path: StrPath) -> Path:
    """The path from the root, ``~`` expanded."""
    return Path(os.path.abspath(Path(path).expanduser()))


def read_json(file: Path, kind: type[T], name: str, hint: str = "") -> T:
    """Reads a JSON file into dataclasses; fields that they lack are skipped unread.

    COCO's 450 MB of training instances are mostly outlines that are not needed: they never
    become Python objects.

    Args:
        file: to be read.
        kind: a dataclass, or a list of one.
        name: what the file should be, for messages (``COCO instances``).
        hint: what else to say about a file of another format.

    Raises:
        UserError: the file is missing, not JSON, cut short, or of another format.
    """
    return _decoded(file, name, hint, lambda json: json.Decoder(kind).decode)


def read_json_lines(file: Path, kind: type[T], name: str) -> list[T]:
    """The same of a file with one object a line."""
    return _decoded(file, name, "", lambda json: json.Decoder(kind).decode_lines)


def _decoded(file: Path, name: str, hint: str, reader: Callable[[Any], Callable[[bytes], T]]) -> T:
    need("msgspec", "lvlm", f"reading {name}")
    import msgspec

    if not file.exists():
        raise missing_path(file)
    more = f"; {hint}" if hint else ""
    with (
        reported_as(f"'{file}' cannot be read: {{reason}}", OSError),
        reported_as(f"'{file}' is no whole JSON ({{reason}}): get it again", msgspec.DecodeError),
        reported_as(f"'{file}' is not {name} ({{reason}}){more}", msgspec.ValidationError),
    ):
        return reader(msgspec.json)(file.read_bytes())


def check_folder(folder: Path, key: str) -> None:
    """Rejects a folder that is none.

    Raises:
        UserError: it does not exist, or is a file.
    """
    if not folder.exists():
        raise missing_path(folder)
    if not folder.is_dir():
        raise UserError(f"'{folder}' is a file; {key} is the folder that holds the images")


def check_images(root: Path, files: Sequence[str], key: str) -> None:
    """Rejects annotations of images that are not there; reads each folder once.

    Args:
        root: folder that ``files`` start from.
        files: relative paths.
        key: configuration key of the root, for the remedy.

    Raises:
        UserError: a file is missing, with the sub-folder that has it, if one does.
    """
    check_folder(root, key)
    missing = []
    for folder, names in grouped(map(os.path.split, files)).items():
        missing += [os.path.join(folder, name) for name in {*names} - _names(root / folder)]
    if not missing:
        return
    first = min(missing)
    home = next((p.parent for p in sorted(root.glob(f"*/{os.path.basename(first)}"))), None)
    remedy = f"it is in '{home}': {key}={home}" if home else f"give their folder: {key}=DIR"
    count = f"{len(missing):,} of {len(files):,} images are"
    remedy += remark(str(root / first))
    raise UserError(f"{count} not in '{root}', '{first}' for one; {remedy}")


def _names(folder: Path) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if entry.is_file()}
    except (FileNotFoundError, NotADirectoryError):
        return set()


def frame_of(records: Sequence[Any], names: Sequence[str]) -> pd.DataFrame:
    """Records as a table, with two or more of their fields as columns."""
    return pd.DataFrame.from_records([*map(attrgetter(*names), records)], columns=list(names))
