"""nuScenes (arXiv 1903.11027): keyframes of the front camera, boxes projected from space."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.hints import check_known
from ood_lab.lvlm.annotations.annotation_files import (
    absolute,
    check_folder,
    check_images,
    need,
    read_json,
)
from ood_lab.lvlm.annotations.annotation_table import Annotations, objects_table
from ood_lab.lvlm.annotations.camera import Camera, visible_boxes
from ood_lab.lvlm.annotations.nuscenes_names import LABELS, label_of, validation_scenes

_CAMERA = "CAM_FRONT"


@dataclass(slots=True)
class _Named:
    token: str
    name: str


@dataclass(slots=True)
class _Sensor:
    token: str
    channel: str


@dataclass(slots=True)
class _Calibrated:
    token: str
    sensor_token: str
    translation: tuple[float, float, float]
    rotation: tuple[float, float, float, float]
    camera_intrinsic: list[list[float]]


@dataclass(slots=True)
class _Pose:
    token: str
    translation: tuple[float, float, float]
    rotation: tuple[float, float, float, float]


@dataclass(slots=True)
class _Sample:
    token: str
    scene_token: str


@dataclass(slots=True)
class _SampleData:
    token: str
    sample_token: str
    ego_pose_token: str
    calibrated_sensor_token: str
    filename: str
    width: int
    height: int
    is_key_frame: bool


@dataclass(slots=True)
class _Instance:
    token: str
    category_token: str


@dataclass(slots=True)
class _Box:
    sample_token: str
    instance_token: str
    visibility_token: str
    translation: tuple[float, float, float]
    size: tuple[float, float, float]
    rotation: tuple[float, float, float, float]


class _HasToken(Protocol):
    token: str


_Row = TypeVar("_Row", bound=_HasToken)


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

    root: str | os.PathLike[str]
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
        images = pd.DataFrame(
            {
                "image": [frame.token for frame in frames],
                "file": [frame.filename for frame in frames],
                "width": np.array([frame.width for frame in frames], np.int64),
                "height": np.array([frame.height for frame in frames], np.int64),
            }
        )
        check_images(root, list(images["file"]), "annotations.root")
        objects = self._objects(root, frames)
        fields = {label: name.split(".")[0].replace("_", " ") for name, label in LABELS.items()}
        categories = tuple(LABELS.values())
        whole = Annotations(self.name, categories, root, images, objects, fields, "driving")
        return whole if self.categories is None else whole.only(self.categories)

    def _table(self, root: Path, name: str, kind: Any) -> list[Any]:
        file = root / self.version / f"{name}.json"
        rows: list[Any] = read_json(file, list[kind], f"nuScenes' table {name}")
        return rows

    def _frames(self, root: Path) -> list[_SampleData]:
        """Keyframes of the front camera in the chosen scenes, by file name."""
        scenes = self._table(root, "scene", _Named)
        wanted = self._wanted({scene.name for scene in scenes})
        tokens = {scene.token for scene in scenes if scene.name in wanted}
        samples = self._table(root, "sample", _Sample)
        chosen = {sample.token for sample in samples if sample.scene_token in tokens}
        front = {s.token for s in self._table(root, "sensor", _Sensor) if s.channel == _CAMERA}
        cameras = {
            entry.token
            for entry in self._table(root, "calibrated_sensor", _Calibrated)
            if entry.sensor_token in front
        }
        frames = [
            frame
            for frame in self._table(root, "sample_data", _SampleData)
            if frame.is_key_frame
            and frame.calibrated_sensor_token in cameras
            and frame.sample_token in chosen
        ]
        if not frames:
            raise UserError(f"'{root / self.version}' has no keyframe of {_CAMERA} in these scenes")
        return sorted(frames, key=lambda frame: frame.filename)

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

    def _objects(self, root: Path, frames: Sequence[_SampleData]) -> pd.DataFrame:
        cameras = self._cameras(root, frames)
        boxes = self._boxes(root, {frame.sample_token for frame in frames})
        labels = self._labels(root, boxes)
        numbers = {label: number for number, label in enumerate(LABELS.values())}
        rows: list[tuple[str, int, np.ndarray]] = []
        for frame, camera in zip(frames, cameras, strict=True):
            kept = [b for b in boxes[frame.sample_token] if labels[b.instance_token] is not None]
            if not kept:
                continue
            seen = visible_boxes(
                np.array([box.translation for box in kept]),
                np.array([box.size for box in kept]),
                np.array([box.rotation for box in kept]),
                camera,
            )
            rows += [
                (frame.token, numbers[str(labels[box.instance_token])], rectangle)
                for box, rectangle in zip(kept, seen, strict=True)
                if not np.isnan(rectangle[0])
            ]
        image, category, found = zip(*rows, strict=True) if rows else ((), (), ())
        rectangles = np.array(found, np.float64).reshape(-1, 4)
        area = rectangles[:, 2] * rectangles[:, 3]
        crowd = np.zeros(len(rows), bool)
        return objects_table(image, category, list(LABELS.values()), rectangles, area, crowd)

    def _cameras(self, root: Path, frames: Sequence[_SampleData]) -> list[Camera]:
        sensors = _by_token(self._table(root, "calibrated_sensor", _Calibrated))
        needed = {frame.ego_pose_token for frame in frames}
        poses = _by_token(p for p in self._table(root, "ego_pose", _Pose) if p.token in needed)
        cameras = []
        for frame in frames:
            sensor, pose = sensors[frame.calibrated_sensor_token], poses.get(frame.ego_pose_token)
            if pose is None:
                raise UserError(
                    f"'{root / self.version}/ego_pose.json' has no pose of '{frame.filename}'"
                )
            cameras.append(
                Camera(
                    (pose.translation, pose.rotation),
                    (sensor.translation, sensor.rotation),
                    np.array(sensor.camera_intrinsic, np.float64),
                    (frame.width, frame.height),
                )
            )
        return cameras

    def _boxes(self, root: Path, samples: set[str]) -> defaultdict[str, list[_Box]]:
        boxes: defaultdict[str, list[_Box]] = defaultdict(list)
        for box in self._table(root, "sample_annotation", _Box):
            # No visibility is an empty string.
            enough = self.min_visibility == 1 or int(box.visibility_token or 0) >= (
                self.min_visibility
            )
            if box.sample_token in samples and enough:
                boxes[box.sample_token].append(box)
        return boxes

    def _labels(self, root: Path, boxes: dict[str, list[_Box]]) -> dict[str, str | None]:
        """The label of every instance that is needed; None = left out."""
        names = {c.token: c.name for c in self._table(root, "category", _Named)}
        needed = {box.instance_token for found in boxes.values() for box in found}
        labels: dict[str, str | None] = {}
        for instance in self._table(root, "instance", _Instance):
            if instance.token in needed:
                if instance.category_token not in names:
                    raise UserError(
                        f"'{root / self.version}/category.json' lacks the category of the instance "
                        f"'{instance.token}'"
                    )
                labels[instance.token] = label_of(names[instance.category_token])
        if missing := needed - labels.keys():
            raise UserError(
                f"'{root / self.version}/instance.json' lacks {len(missing):,} of the annotated "
                f"instances, '{min(missing)}' for one"
            )
        return labels


def _by_token(rows: Iterable[_Row]) -> dict[str, _Row]:
    return {row.token: row for row in rows}
