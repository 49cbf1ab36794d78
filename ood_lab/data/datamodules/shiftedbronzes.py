"""ShiftedBronzes: dated bronze ding and gui, and five sets shifted away from their photographs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ood_lab.common.arguments import Seed
from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath
from ood_lab.common.hints import check_known, missing_path
from ood_lab.common.unicode_names import existing
from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.data.datamodules.class_labels import add_levels
from ood_lab.data.dataset import ID_SPLITS, UNKNOWN, Splits
from ood_lab.data.sources.folders import instead, read_folder
from ood_lab.data.sources.label_names import encode_names
from ood_lab.data.sources.table_columns import read_texts
from ood_lab.data.transforms.subsets import check_shares, stratified_split
from ood_lab.schema.arrays import positions
from ood_lab.schema.results import Tables


class BronzesDataModule(OODDataModule):
    """The layout of ``conf/data/shiftedbronzes.yaml`` (data of arXiv 2412.12683).

    ID are the annotated images below ``colour/``: the class (and ``level_1``) is the period,
    ``level_0`` the era, ``category``, ``shape`` and ``attribute_<characteristic>`` where known.
    OOD sets are folders; the annotated ones among them keep their category.

    Args:
        root: folder of the data set.
        ood: folder below ``root``, or a list of them, of each OOD set; null = left out. The order
            is that of the shift, slightest first.
        periods: all periods in chronological order, which numbers the classes; None = sorted.
        split: shares of train, val and test, stratified by category and period; sum 1.
        split_seed: of the split.
        splits: folder with ``train.csv``, ``val.csv`` and ``test.csv`` of an earlier run
            (``<run>/splits``), which is then the split; None = a split is made.
        name: of the data, for folders and tables.
        shift_order: of the OOD sets, for DAD; None = that of ``ood_groups``, or of ``ood``.
        ood_groups: see :class:`OODDataModule`; a skipped set is in none.
        options: see :class:`OODDataModule`.
    """

    def __init__(
        self,
        root: StrPath,
        ood: Mapping[str, str | Sequence[str] | None],
        periods: Sequence[str] | None = None,
        split: Sequence[float] = (0.4, 0.1, 0.5),
        split_seed: Seed = 0,
        splits: StrPath | None = None,
        name: str = "shiftedbronzes",
        shift_order: Sequence[str] | None = None,
        ood_groups: Mapping[str, Sequence[str]] | None = None,
        **options: Any,
    ) -> None:
        self.root = Path(os.path.abspath(Path(root).expanduser()))
        self.folders = {
            key: [self.root / part for part in ([value] if isinstance(value, str) else value)]
            for key, value in ood.items()
            if value
        }
        groups = {
            group: [one for one in sets if ood.get(one, True)]
            for group, sets in (ood_groups or {}).items()
        }
        order = list(self.folders) if shift_order is None and not groups else shift_order
        super().__init__(name, shift_order=order, ood_groups=groups, **options)
        self.periods = periods
        self.split = list(split)
        self.split_seed = split_seed
        self.given_splits = Path(splits) if splits else None

    @property
    def sources(self) -> dict[str, Path]:
        """The annotations, the colour images, the folders of the OOD sets, and a given split."""
        paths = {"annotations": self.root / "annotations.csv", COLOUR: self.root / COLOUR}
        for name, places in self.folders.items():
            paths |= {name if len(places) == 1 else f"{name}/{p.name}": p for p in places}
        return paths | ({"splits": self.given_splits} if self.given_splits else {})

    def further_counts(self) -> pd.DataFrame:
        """Boxes by characteristic, of all images in distribution."""
        paths = pd.concat([self.splits[name].table["image"] for name in ID_SPLITS])
        names = boxes_of(self.root, paths)["characteristic"]
        sizes = names.value_counts(sort=False).rename_axis("name").rename("images").reset_index()
        return sizes.assign(label="box", category="", dataset="id")

    def build_splits(self) -> Splits:
        """Reads the annotations, splits the colour images and lists the OOD folders."""
        for place in self.sources.values():
            if not place.exists():
                raise missing_path(place)
        annotated = read_annotations(self.root)
        colour = annotated[annotated["kind"] == COLOUR].reset_index(drop=True)
        if colour.empty:
            raise UserError(f"'{self.root / 'annotations.csv'}' has no image below {COLOUR}/")
        colour = colour.join(read_boxes(self.root, colour["image"]))
        outside = {name: self._outside(name, annotated) for name in self.folders}
        classes, names = self._encode(colour, outside)
        tables = self._divide(colour)
        labelled = dict.fromkeys(tables, classes)
        return self.file_sets({**tables, **outside}, labelled, names)

    def _encode(self, colour: pd.DataFrame, outside: Tables) -> tuple[list[str], dict[str, Any]]:
        """Replaces names by numbers, in place; returns the classes and the names by column."""
        classes = self._classes(colour)
        source = f"'{self.root / 'annotations.csv'}'"
        eras = colour.drop_duplicates(["period", "era"]).set_index("period")[["era"]]
        clash = eras.index[eras.index.duplicated()]
        if len(clash):
            both = " and ".join(eras.loc[clash[0], "era"])
            raise UserError(f"{source}: period '{clash[0]}' has two eras, {both}: it needs one")
        colour["label"] = colour["period"].map(classes.index).astype(np.int64)
        names = encode_names({"train": colour}, outside)
        order = {"era": list(dict.fromkeys(eras.loc[classes, "era"]))}
        return classes, names | add_levels({"train": colour}, classes, eras, source, order)

    def _classes(self, colour: pd.DataFrame) -> list[str]:
        """The periods that occur, in chronological order."""
        present = sorted(colour["period"].unique())
        if not self.periods:
            return present
        wrong = "period '{name}' of annotations.csv is not in data.periods"
        check_known(present, self.periods, wrong)
        return [name for name in self.periods if name in present]

    def _divide(self, colour: pd.DataFrame) -> Tables:
        """The ID splits: as given, or 4:1:5 within every category and period."""
        if self.given_splits:
            rows = read_splits(self.given_splits, colour["image"])
            left = len(colour) - sum(map(len, rows.values()))
            more = f"; {left:,} annotated images are in none" if left else ""
            self.notes.append(f"split read from {self.given_splits}{more}")
        else:
            check_shares(self.split)
            strata = colour.groupby(["category", "label"]).ngroup().to_numpy()
            # Test before val: where a stratum has two images, none of them validates.
            shares = [self.split[2], self.split[1]]
            train, test, val = stratified_split(strata, shares, self.split_seed)
            rows = {"train": train, "val": val, "test": test}
            self.split_off = ["val", "test"]
            counts = ", ".join(f"{len(part):,} {name}" for name, part in rows.items())
            self.notes.append(f"split by category and period (seed {self.split_seed}): {counts}")
        return {name: colour.iloc[part].reset_index(drop=True) for name, part in rows.items()}

    def _outside(self, name: str, annotated: pd.DataFrame) -> pd.DataFrame:
        """One OOD set; ``category`` where annotated."""
        parts = []
        for folder in self.folders[name]:
            part = read_folder(folder, labelled=False, tell=self.remark)
            if part.empty:
                raise UserError(f"'{folder}' contains no images{instead(folder)}")
            parts.append(part.assign(kind=folder.name))
        table = pd.concat(parts, ignore_index=True)
        by_path = annotated.set_index("path")
        table["category"] = table["path"].map(by_path["category"]).fillna(str(UNKNOWN))
        for name in ("era", "period", "shape"):  # to be counted, not predicted
            labels = table["path"].map(by_path[name]).fillna("")
            table[f"{name}_name"] = labels.where(labels != str(UNKNOWN), "")
        table["category_name"] = table["label"].where(table["label"] != str(UNKNOWN), "")
        return table.assign(label=UNKNOWN)


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
    file, boxes = root / "boxes.csv", boxes_of(root, images)
    if boxes.empty and file.exists():
        raise UserError(f"'{file}' names no image below {COLOUR}/: its paths start from '{root}'")
    present = pd.crosstab(boxes["path"], boxes["characteristic"]).clip(upper=1)
    present = present.reindex(images, fill_value=0).astype("float32").set_index(images.index)
    return present.add_prefix("attribute_").rename_axis(columns=None)


def read_splits(folder: Path, images: pd.Series) -> dict[str, np.ndarray]:
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
    parts = {}
    for split in ID_SPLITS:
        file = folder / f"{split}.csv"
        parts[split] = read_texts(file, ("image",), ())["image"]
        wrong = f"'{file}' lists '{{name}}', which is not in annotations.csv"
        check_known(parts[split], images.tolist(), wrong)
    listed = pd.concat(parts)
    if len(twice := listed[listed.duplicated(keep=False)].sort_values(kind="stable")):
        (one, _), (other, _) = twice.index[:2]
        raise UserError(f"'{twice.iloc[0]}' is in {one} and in {other} of '{folder}'")
    return {split: positions(images, part) for split, part in parts.items()}
