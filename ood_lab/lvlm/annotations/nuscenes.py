"""nuScenes (arXiv 1903.11027): keyframes of the front camera, boxes projected from space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath
from ood_lab.common.hints import check_known
from ood_lab.lvlm.annotations.annotation_files import (
    absolute,
    check_folder,
    check_images,
    frame_of,
    need,
    read_json,
)
from ood_lab.lvlm.annotations.annotation_table import (
    BOX,
    Annotations,
    images_table,
    objects_table,
)
from ood_lab.lvlm.annotations.camera import Camera, Quaternion, Vector, visible_boxes
from ood_lab.lvlm.annotations.nuscenes_names import LABELS, label_of, validation_scenes

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
        **dict.fromkeys(("sample_token", "instance_token", "visibility_token"), str),
        **{"translation": Vector, "size": Vector, "rotation": Quaternion},
    },
}


@dataclass(frozen=True)
class NuScenesAnnotations:
    """Keyframes of the front camera, with the objects whose boxes reach into the image.

    Layout: ``root/<version>/*.json`` (the tables) and ``root/samples/CAM_FRONT/*.jpg``.

    A box is the bounding rectangle of the convex hull of its projected corners (those in front of
    the camera) within the image, as nuScenes' own export of 2D boxes has it: not tight, and blind
    to what is before it. ``area`` is that of the rectangle. Bins of visibility are those over
    all six cameras: 1: 0 to 40%, 2: to 60%, 3: to 80%, 4: to 100%.

    nuscenes-devkit reads the same tables, but asks for numpy below 2.

    Args:
        root: folder of the data set.
        version: ``v1.0-trainval`` or ``v1.0-mini``.
        scenes: ``val`` (the 150 scenes of the split), ``all``, or names of scenes.
        min_visibility: skips objects of lower bins; 1 = none, not even those without a bin.
        categories: names to keep, of ``LABELS``' values, in this order; None = all 22.
        name: of the data, for folders and tables.
    """

    root: StrPath
    version: str = "v1.0-trainval"
    scenes: str | Sequence[str] = "val"
    min_visibility: int = 1
    categories: Sequence[str] | None = None
    name: str = "nuscenes"

    def read(self) -> Annotations:
        """Reads and checks the tables, and that every image is there.

        Raises:
            UserError: shapely is missing; a missing, broken or foreign file, a missing image, an
                unknown scene or category, a number out of range.
        """
        need("shapely", "nuscenes", "annotations=nuscenes")
        if not 1 <= self.min_visibility <= 4:
            raise UserError(f"annotations.min_visibility={self.min_visibility}; give 1 to 4")
        root = absolute(self.root)
        check_folder(root, "annotations.root")
        frames = self._frames(root)
        images = images_table(*(frames[key] for key in ("token", "filename", "width", "height")))
        check_images(root, list(images["file"]), "annotations.root")
        fields = {label: name.split(".")[0].replace("_", " ") for name, label in LABELS.items()}
        known = (root, images, self._objects(root, frames), fields, "driving")
        return Annotations(self.name, tuple(LABELS.values()), *known).only(self.categories)

    def _table(self, root: Path, name: str) -> pd.DataFrame:
        """A table of nuScenes, with its columns of :data:`_TABLES`."""
        import msgspec

        kind: Any = msgspec.defstruct(name, _TABLES[name].items())
        file = root / self.version / f"{name}.json"
        return frame_of(read_json(file, list[kind], f"nuScenes' table {name}"), *_TABLES[name])

    def _frames(self, root: Path) -> pd.DataFrame:
        """Keyframes of the front camera in the chosen scenes, by file name, with its mounting."""
        scenes, samples = self._table(root, "scene"), self._table(root, "sample")
        chosen = scenes.loc[scenes["name"].isin(self._wanted({*scenes["name"]})), "token"]
        samples = samples[samples["scene_token"].isin(chosen)]
        sensors = self._table(root, "sensor")
        front = sensors.loc[sensors["channel"] == _CAMERA, "token"]
        mounts = self._table(root, "calibrated_sensor")
        mounts = mounts[mounts["sensor_token"].isin(front)].rename(
            columns={"token": "calibrated_sensor_token"}
        )
        frames = self._table(root, "sample_data")
        frames = frames[frames["is_key_frame"].astype(bool)]
        frames = frames[frames["sample_token"].isin(samples["token"])]
        frames = frames.merge(mounts, on="calibrated_sensor_token").sort_values("filename")
        if not len(frames):
            raise UserError(f"'{root / self.version}' has no keyframe of {_CAMERA} in these scenes")
        return frames.reset_index(drop=True)

    def _wanted(self, known: set[str]) -> set[str]:
        if self.scenes == "all":
            return known
        if self.scenes == "val":
            found = known & validation_scenes()
            if not found:
                raise UserError(
                    f"{self.version} has no scene of the validation split: annotations.scenes=all"
                )
            return found
        names = [self.scenes] if isinstance(self.scenes, str) else list(self.scenes)
        check_known(names, sorted(known), f"{self.version} has no scene '{{name}}'")
        return set(names)

    def _objects(self, root: Path, frames: pd.DataFrame) -> pd.DataFrame:
        """The boxes that reach into the images, frame by frame."""
        poses = self._table(root, "ego_pose").set_index("token").add_prefix("car_")
        frames = frames.join(poses, on="ego_pose_token")
        if (lost := frames["car_rotation"].isna()).any():
            file = frames.loc[lost, "filename"].iloc[0]
            raise UserError(f"'{root / self.version}/ego_pose.json' has no pose of '{file}'")
        boxes = self._boxes(root, frames["sample_token"])
        groups = dict(iter(boxes.groupby("sample_token")))
        parts = [pd.DataFrame(columns=["image", "label", *BOX])]
        for frame in frames.to_dict("records"):
            if (own := groups.get(frame["sample_token"])) is not None:
                centres, sizes, rotations = (np.array(own[key].tolist()) for key in _PLACEMENT)
                seen = visible_boxes(centres, sizes, rotations, _camera(frame))
                part = pd.DataFrame(seen, columns=list(BOX))
                parts.append(part.assign(image=frame["token"], label=own["label"].to_numpy()))
        table = pd.concat(parts[1:] or parts).dropna(subset=BOX[0])
        labels = list(LABELS.values())
        codes = pd.Index(labels).get_indexer(pd.Index(table["label"]))
        return objects_table(table["image"].tolist(), codes, labels, table[list(BOX)].to_numpy())

    def _boxes(self, root: Path, samples: pd.Series) -> pd.DataFrame:
        """Annotated boxes of these samples with their ``label``, but the skipped ones."""
        boxes = self._table(root, "sample_annotation")
        boxes = boxes[boxes["sample_token"].isin(samples)]
        if self.min_visibility > 1:
            boxes = boxes[pd.to_numeric(boxes["visibility_token"]) >= self.min_visibility]
        names = self._table(root, "category").set_index("token")["name"]
        instances = self._table(root, "instance").set_index("token")["category_token"]
        needed = instances[instances.index.isin(boxes["instance_token"])].map(names)
        if (lost := needed.isna()).any():
            raise UserError(
                f"'{root / self.version}/category.json' lacks the category of the instance "
                f"'{needed.index[lost][0]}'"
            )
        if missing := {*boxes["instance_token"]} - {*needed.index}:
            raise UserError(
                f"'{root / self.version}/instance.json' lacks {len(missing):,} of the annotated "
                f"instances, '{min(missing)}' for one"
            )
        labels = boxes["instance_token"].map(needed.map(label_of))
        return boxes.assign(label=labels).dropna(subset="label")


def _camera(frame: Mapping[Any, Any]) -> Camera:
    return Camera(
        (frame["car_translation"], frame["car_rotation"]),
        (frame["translation"], frame["rotation"]),
        np.array(frame["camera_intrinsic"], np.float64),
        (frame["width"], frame["height"]),
    )
