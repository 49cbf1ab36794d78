"""Cityscapes' fine polygons (arXiv 1604.01685)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath
from ood_lab.common.hints import check_known, missing_path
from ood_lab.lvlm.annotations import annotation_table
from ood_lab.lvlm.annotations.annotation_table import (
    Annotations,
    absolute,
    check_images,
    images_table,
    objects_table,
    read_json,
)

#: The 23 labels that OODBench keeps (arXiv 2602.18094), under their own names, by their group.
GROUPS: dict[str, list[str]] = annotation_table.LABELS["cityscapes"]
LABELS = tuple(label for labels in GROUPS.values() for label in labels)
_DROPPED = annotation_table.LABELS["cityscapes_dropped"]
_GROUP = "group"
_POLYGONS, _IMAGE = "_gtFine_polygons.json", "_leftImg8bit.png"


@dataclass(slots=True)
class _Polygon:
    label: str
    polygon: list[tuple[float, float]]
    deleted: bool | int = 0


@dataclass(slots=True)
class _Frame:
    imgWidth: int
    imgHeight: int
    objects: list[_Polygon]


@dataclass(frozen=True)
class CityscapesAnnotations:
    """The left images of a split, with their fine polygons.

    Layout: ``root/gtFine/<split>/<city>/<city>_<sequence>_<frame>_gtFine_polygons.json`` and
    ``root/leftImg8bit/<split>/<city>/<city>_<sequence>_<frame>_leftImg8bit.png``.

    The area is that of the polygon (shoelace formula), hidden parts included; ``cargroup`` and the
    like are a crowd of ``car``.

    Args:
        root: folder with ``gtFine`` and ``leftImg8bit``.
        split: ``train``, ``val`` or ``test`` (whose polygons are not public).
        categories: those to keep, of ``LABELS``, in this order; None = all 23.
        name: of the data, for folders and tables.
    """

    root: StrPath
    split: str = "val"
    categories: Sequence[str] | None = None
    name: str = "cityscapes"

    def read(self) -> Annotations:
        """Reads and checks all files of the split, and that every image is there.

        Raises:
            UserError: a missing, broken or foreign file, a missing image, an unknown label.
        """
        root = absolute(self.root)
        files = self._files(root)
        frames = [read_json(file, _Frame, "a file of Cityscapes' polygons") for file in files]
        names = [
            f"{file.parent.name}/{file.name.removesuffix(_POLYGONS)}{_IMAGE}" for file in files
        ]
        images = images_table(
            [name.split("/")[-1].removesuffix(_IMAGE) for name in names],
            names,
            [frame.imgWidth for frame in frames],
            [frame.imgHeight for frame in frames],
            place=[file.parent.name for file in files],
        )
        objects = _objects(files, frames, list(images["image"]))
        folder = root / "leftImg8bit" / self.split
        check_images(folder, names, "annotations.root")
        fields = {label: group for group, labels in GROUPS.items() for label in labels}
        return Annotations(self.name, LABELS, folder, images, objects, fields, "driving").only(
            self.categories
        )

    def _files(self, root: Path) -> list[Path]:
        folder = root / "gtFine" / self.split
        if not folder.is_dir():
            raise missing_path(folder)
        files = sorted(folder.glob(f"*/*{_POLYGONS}"))
        if not files:
            raise UserError(
                f"'{folder}' has no <city>/*{_POLYGONS}: unpack Cityscapes' gtFine_trainvaltest.zip"
            )
        return files


def _objects(files: Sequence[Path], frames: Sequence[_Frame], ids: Sequence[str]) -> pd.DataFrame:
    rows = []
    for file, frame, image in zip(files, frames, ids, strict=True):
        for entry in frame.objects:
            if entry.deleted or entry.label in _DROPPED:
                continue
            category = entry.label.removesuffix(_GROUP)
            check_known([category], LABELS, f"'{file}' has the unknown label '{{name}}'")
            box, area = _measure(np.array(entry.polygon, np.float64).reshape(-1, 2), frame)
            rows.append((image, LABELS.index(category), box, area, category != entry.label))
    image_ids, categories, boxes, areas, crowds = zip(*rows, strict=True) if rows else ((),) * 5
    return objects_table(image_ids, categories, LABELS, np.array(boxes), areas, crowds)


def _measure(corners: np.ndarray, frame: _Frame) -> tuple[tuple[float, ...], float]:
    """Box within the image and area of a polygon ``[N, 2]``."""
    x = np.clip(corners[:, 0], 0, frame.imgWidth)
    y = np.clip(corners[:, 1], 0, frame.imgHeight)
    area = 0.5 * abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1)))
    return (x.min(), y.min(), np.ptp(x), np.ptp(y)), area
