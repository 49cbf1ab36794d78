"""nuScenes (arXiv 1903.11027): keyframes of the front camera, boxes projected from space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.spatial.transform import Rotation

from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath
from ood_lab.common.hints import check_known
from ood_lab.lvlm.annotations import annotation_table
from ood_lab.lvlm.annotations.annotation_table import (
    BOX,
    Annotations,
    absolute,
    check_folder,
    check_images,
    frame_of,
    images_table,
    need,
    objects_table,
    read_json,
)
from ood_lab.schema.arrays import positions

#: The 22 names that OODBench keeps; questions ask for them in lower case.
LABELS: dict[str, str] = annotation_table.LABELS["nuscenes"]
_DROPPED = "movable_object.debris"
#: Numbers of the 150 scenes of the validation split.
_VAL = (
    "3 12-18 35-36 38-39 92-110 221 268-278 329-332 344-346 519-524 552-565 625-627 629-630 "
    "632-638 770-771 775 777-778 780-784 794-800 802 904-917 919-931 962-963 966-969 971-972 "
    "1059-1073"
)


def label_of(category: str) -> str | None:
    """The name of a category; None = left out.

    The tables write ``personal_mobility``, papers ``personal.mobility``: both are known.

    Raises:
        UserError: there is no such category.
    """
    labels = {name.replace("_", "."): label for name, label in {**LABELS, _DROPPED: None}.items()}
    name = category.replace("_", ".")
    check_known([name], labels, "nuScenes has no category '{name}'")
    return labels[name]


def validation_scenes() -> set[str]:
    """Names of nuScenes' 150 validation scenes."""
    names = set()
    for part in _VAL.split():
        first, _, last = part.partition("-")
        names |= {f"scene-{n:04d}" for n in range(int(first), int(last or first) + 1)}
    return names


Vector = tuple[float, float, float]
Quaternion = tuple[float, float, float, float]
#: Corners of a box of side 2.
_CORNERS = np.array(list(product((-1.0, 1.0), repeat=3)))


def visible_boxes(
    centres: np.ndarray,
    sizes: np.ndarray,
    rotations: np.ndarray,
    poses: Sequence[tuple[Vector, Quaternion]],
    intrinsic: np.ndarray,
    size: tuple[int, int],
) -> np.ndarray:
    """Left, top, width and height of boxes in the image, ``[N, 4]``; NaN = not in it.

    The bounding rectangle of (convex hull of the projections of those corners that are in front
    of the camera) ∩ (image).

    Args:
        centres: in the world, metres, ``[N, 3]``.
        sizes: width, length and height, metres, ``[N, 3]``; the length is along the box's own x.
        rotations: quaternions w, x, y, z, ``[N, 4]``.
        poses: position (metres) and orientation (quaternion w, x, y, z) of the car in the world,
            then those of the camera on the car.
        intrinsic: ``[3, 3]``, from camera coordinates (z forward) to pixels.
        size: width and height of the image, pixels.
    """
    import shapely

    half = 0.5 * sizes[:, None, [1, 0, 2]]
    points = np.einsum("nij,nkj->nki", _matrix(rotations), _CORNERS * half) + centres[:, None]
    for position, orientation in poses:
        # Times a rotation from the right: turned back.
        points = (points - np.array(position)) @ _matrix(np.array([orientation]))[0]
    box, corner = np.nonzero(points[..., 2] > 0)
    pixels = points[box, corner] @ intrinsic.T
    hulls = shapely.convex_hull(
        shapely.multipoints(
            shapely.points(pixels[:, :2] / pixels[:, 2:]),
            indices=box,
            out=np.full(len(sizes), None),
        )
    )
    seen = shapely.clip_by_rect(hulls, 0, 0, size[0], size[1])
    left, top, right, bottom = shapely.bounds(seen).T
    results = np.stack([left, top, right - left, bottom - top], 1)
    results[~(shapely.area(seen) > 0)] = np.nan
    return results


def _matrix(quaternions: np.ndarray) -> np.ndarray:
    """Rotation matrices ``[N, 3, 3]`` of quaternions w, x, y, z."""
    matrices: np.ndarray = Rotation.from_quat(quaternions[:, [1, 2, 3, 0]]).as_matrix()
    return matrices


_CAMERA = "CAM_FRONT"
#: Where a box is, how large, and how it is turned.
_PLACEMENT = ("translation", "size", "rotation")
#: Columns of its tables that are read, with their types.
_TABLES: Mapping[str, Mapping[str, Any]] = {
    "scene": {"token": str, "name": str},
    "sample": {"token": str, "scene_token": str},
    "sensor": {"token": str, "channel": str},
    "calibrated_sensor": {
        "token": str,
        "sensor_token": str,
        "translation": Vector,
        "rotation": Quaternion,
        "camera_intrinsic": list[list[float]],
    },
    "ego_pose": {"token": str, "translation": Vector, "rotation": Quaternion},
    "sample_data": {
        **dict.fromkeys(("token", "sample_token", "ego_pose_token"), str),
        **dict.fromkeys(("calibrated_sensor_token", "filename"), str),
        **{"width": int, "height": int, "is_key_frame": bool},
    },
    "category": {"token": str, "name": str},
    "instance": {"token": str, "category_token": str},
    "sample_annotation": {
        **dict.fromkeys(("sample_token", "instance_token"), str),
        **{"translation": Vector, "size": Vector, "rotation": Quaternion},
    },
}


@dataclass(frozen=True)
class NuScenesAnnotations:
    """Keyframes of the front camera, with the objects whose boxes reach into the image.

    Layout: ``root/<version>/*.json`` (the tables) and ``root/samples/CAM_FRONT/*.jpg``.

    A box is the bounding rectangle of the convex hull of its projected corners (those in front of
    the camera) within the image, as nuScenes' own export of 2D boxes has it: not tight, and blind
    to what is before it. ``area`` is that of the rectangle.

    nuscenes-devkit reads the same tables, but asks for numpy below 2.

    Args:
        root: folder of the data set.
        version: ``v1.0-trainval`` or ``v1.0-mini``.
        scenes: ``val`` (the 150 scenes of the split) or ``all``.
        categories: names to keep, of ``LABELS``' values, in this order; None = all 22.
        name: of the data, for folders and tables.
    """

    root: StrPath
    version: str = "v1.0-trainval"
    scenes: Literal["val", "all"] = "val"
    categories: Sequence[str] | None = None
    name: str = "nuscenes"

    def read(self) -> Annotations:
        """Reads and checks the tables, and that every image is there.

        Raises:
            UserError: shapely is missing; a missing, broken or foreign file, a missing image, an
                unknown category.
        """
        need("shapely", "nuscenes", "annotations=nuscenes")
        root = absolute(self.root)
        check_folder(root, "annotations.root")
        frames = self._frames(root)
        images = images_table(
            frames["token"], frames["filename"], frames["width"], frames["height"]
        )
        check_images(root, list(images["file"]), "annotations.root")
        fields = {label: name.split(".")[0].replace("_", " ") for name, label in LABELS.items()}
        labels, objects = tuple(LABELS.values()), self._objects(root, frames)
        return Annotations(self.name, labels, root, images, objects, fields, "driving").only(
            self.categories
        )

    def _table(self, root: Path, name: str) -> pd.DataFrame:
        """A table of nuScenes, with its columns of :data:`_TABLES`."""
        import msgspec

        kind: Any = msgspec.defstruct(name, _TABLES[name].items())
        file = root / self.version / f"{name}.json"
        return frame_of(read_json(file, list[kind], f"nuScenes' table {name}"), list(_TABLES[name]))

    def _joined(self, root: Path, rows: pd.DataFrame, key: str, name: str) -> pd.DataFrame:
        """Rows with the columns of the entry of a table that their ``key`` names.

        Raises:
            UserError: the table lacks one.
        """
        table = self._table(root, name).set_index("token").add_prefix(f"{name}_")
        if (lost := ~rows[key].isin(table.index)).any():
            raise UserError(
                f"'{root / self.version / name}.json' lacks {lost.sum():,} of the entries that "
                f"other tables name, '{rows.loc[lost, key].iloc[0]}' for one"
            )
        return rows.join(table, on=key)

    def _frames(self, root: Path) -> pd.DataFrame:
        """Keyframes of the front camera in the chosen scenes, by file name, with its mounting."""
        frames = self._table(root, "sample_data")
        frames = frames[frames["is_key_frame"].astype(bool)]
        frames = self._joined(root, frames, "calibrated_sensor_token", "calibrated_sensor")
        frames = self._joined(root, frames, "calibrated_sensor_sensor_token", "sensor")
        frames = frames[frames["sensor_channel"] == _CAMERA]
        frames = self._joined(root, frames, "sample_token", "sample")
        frames = self._joined(root, frames, "sample_scene_token", "scene")
        if self.scenes == "val":
            frames = frames[frames["scene_name"].isin(validation_scenes())]
        if not len(frames):
            raise UserError(
                f"'{root / self.version}' has no keyframe of {_CAMERA} in these scenes: "
                "annotations.scenes=all"
            )
        return frames.sort_values("filename", ignore_index=True)

    def _objects(self, root: Path, frames: pd.DataFrame) -> pd.DataFrame:
        """The boxes that reach into the images, frame by frame."""
        frames = self._joined(root, frames, "ego_pose_token", "ego_pose")
        groups = dict(iter(self._boxes(root, frames["sample_token"]).groupby("sample_token")))
        parts = [pd.DataFrame(columns=["image", "label", *BOX])]
        for frame in frames.to_dict("records"):
            if (boxes_of_frame := groups.get(frame["sample_token"])) is not None:
                centres, sizes, rotations = (
                    np.array(boxes_of_frame[key].tolist()) for key in _PLACEMENT
                )
                poses = [
                    (frame[f"{name}_translation"], frame[f"{name}_rotation"])
                    for name in ("ego_pose", "calibrated_sensor")
                ]
                intrinsic = np.array(frame["calibrated_sensor_camera_intrinsic"], np.float64)
                size = frame["width"], frame["height"]
                seen = visible_boxes(centres, sizes, rotations, poses, intrinsic, size)
                part = pd.DataFrame(seen, columns=list(BOX))
                parts.append(
                    part.assign(image=frame["token"], label=boxes_of_frame["label"].to_numpy())
                )
        table = pd.concat(parts[1:] or parts).dropna(subset=BOX[0])
        labels = list(LABELS.values())
        codes = positions(labels, table["label"])
        return objects_table(table["image"].tolist(), codes, labels, table[list(BOX)].to_numpy())

    def _boxes(self, root: Path, samples: pd.Series) -> pd.DataFrame:
        """Annotated boxes of these samples with their ``label``, but the skipped ones."""
        boxes = self._table(root, "sample_annotation")
        boxes = boxes[boxes["sample_token"].isin(samples)]
        boxes = self._joined(root, boxes, "instance_token", "instance")
        boxes = self._joined(root, boxes, "instance_category_token", "category")
        labels = {name: label_of(name) for name in boxes["category_name"].unique()}
        return boxes.assign(label=boxes["category_name"].map(labels)).dropna(subset="label")
