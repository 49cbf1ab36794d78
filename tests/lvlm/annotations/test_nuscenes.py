"""nuScenes in its documented layout: a camera one metre above a turned car."""

import json
from collections import Counter

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from ood_lab.common.errors import UserError
from ood_lab.lvlm.annotations.nuscenes import (
    LABELS,
    NuScenesAnnotations,
    label_of,
    validation_scenes,
    visible_boxes,
)

FOCAL = 1000.0
INTRINSIC = [[FOCAL, 0.0, 800.0], [0.0, FOCAL, 450.0], [0.0, 0.0, 1.0]]
#: The car stands at (100, 50) and looks along the world's y.
TURN = Rotation.from_euler("z", 90, degrees=True)
CAR = ([100.0, 50.0, 0.0], TURN)
#: Camera coordinates: x right, y down, z forward; the car's: x forward, y left, z up.
MOUNT = ([0.0, 0.0, 1.0], Rotation.from_matrix([[0, 0, 1], [-1, 0, 0], [0, -1, 0]]))


def quaternion(rotation):
    x, y, z, w = rotation.as_quat().tolist()
    return [w, x, y, z]


def ahead(forward, left=0.0, up=0.0):
    """A point seen from the car, in the world."""
    return (TURN.apply([forward, left, up]) + np.array(CAR[0])).tolist()


def box(number, category, centre, visibility="4", size=(2.0, 4.0, 2.0), sample="key"):
    instance = {"token": f"instance{number}", "category_token": category, "nbr_annotations": 1}
    annotation = {
        "token": f"box{number}",
        "sample_token": sample,
        "instance_token": f"instance{number}",
        "visibility_token": visibility,
        "attribute_tokens": [],
        "translation": centre,
        "size": list(size),
        "rotation": quaternion(TURN),
        "num_lidar_pts": 3,
    }
    return instance, annotation


@pytest.fixture
def place(tmp_path):
    car = box(1, "vehicle.car", ahead(20.0))
    behind = box(2, "vehicle.car", ahead(-20.0))
    cone = box(3, "movable_object.trafficcone", ahead(10.0, 8.0), "1", (0.4, 0.4, 1.0))
    debris = box(4, "movable_object.debris", ahead(10.0))
    blind = box(5, "human.pedestrian.personal_mobility", ahead(10.0), "", (0.4, 0.4, 2.0))
    other = box(6, "vehicle.car", ahead(20.0), sample="elsewhere")
    boxes = (car, behind, cone, debris, blind, other)
    names = {entry[0]["category_token"] for entry in boxes}
    frame = {
        "ego_pose_token": "pose",
        "fileformat": "jpg",
        "width": 1600,
        "height": 900,
        "timestamp": 1,
        "is_key_frame": True,
        "sample_token": "key",
    }
    front = frame | {"calibrated_sensor_token": "front mounted"}
    tables = {
        "scene": [
            {"token": "s1", "name": "scene-0103", "nbr_samples": 1},
            {"token": "s2", "name": "scene-0061", "nbr_samples": 1},
        ],
        "sample": [
            {"token": "key", "scene_token": "s1", "timestamp": 1},
            {"token": "elsewhere", "scene_token": "s2", "timestamp": 1},
        ],
        "sensor": [
            {"token": "front", "channel": "CAM_FRONT", "modality": "camera"},
            {"token": "lidar", "channel": "LIDAR_TOP", "modality": "lidar"},
        ],
        "calibrated_sensor": [
            {
                "token": f"{name} mounted",
                "sensor_token": name,
                "translation": MOUNT[0],
                "rotation": quaternion(MOUNT[1]),
                "camera_intrinsic": INTRINSIC if name == "front" else [],
            }
            for name in ("front", "lidar")
        ],
        "ego_pose": [
            {"token": "pose", "translation": CAR[0], "rotation": quaternion(CAR[1]), "timestamp": 1}
        ],
        "sample_data": [
            front | {"token": "image", "filename": "samples/CAM_FRONT/key.jpg"},
            front | {"token": "sweep", "filename": "sweeps/x.jpg", "is_key_frame": False},
            frame
            | {"token": "points", "filename": "x.bin", "calibrated_sensor_token": "lidar mounted"},
            front
            | {
                "token": "other",
                "filename": "samples/CAM_FRONT/other.jpg",
                "sample_token": "elsewhere",
            },
        ],
        "instance": [entry[0] for entry in boxes],
        "sample_annotation": [entry[1] for entry in boxes],
        "category": [{"token": name, "name": name, "description": ""} for name in names],
    }
    (tmp_path / "v1.0-mini").mkdir()
    for name, rows in tables.items():
        (tmp_path / "v1.0-mini" / f"{name}.json").write_text(json.dumps(rows))
    (tmp_path / "samples" / "CAM_FRONT").mkdir(parents=True)
    for name in ("key", "other"):
        (tmp_path / "samples" / "CAM_FRONT" / f"{name}.jpg").touch()
    return tmp_path


def source(place, **options):
    return NuScenesAnnotations(place, version="v1.0-mini", **options)


def test_front_keyframes_of_the_validation_scenes(place):
    found = source(place).read()
    assert found.domain == "driving"
    assert list(found.fields) == list(found.categories)
    counts = {"human": 7, "animal": 1, "vehicle": 10, "movable object": 3, "static object": 1}
    assert Counter(found.fields.values()) == counts
    assert found.categories == tuple(LABELS.values())
    assert len(found.categories) == 22
    assert found.images["file"].tolist() == ["samples/CAM_FRONT/key.jpg"]
    assert found.objects["category"].tolist() == [
        "car",
        "traffic cone",
        "pedestrian using personal mobility device",
    ]
    # Front face at 18 m, 2 m wide, from 1 m below the ground to 1 m above; the camera is at 1 m.
    car = found.objects.iloc[0]
    left, width = 800 - FOCAL / 18, 2 * FOCAL / 18
    # The upper edge is level with the camera: all its points lie on the horizon.
    expected = [left, 450.0, width, 2 * FOCAL / 18]
    np.testing.assert_allclose(
        [car["box_x"], car["box_y"], car["box_width"], car["box_height"]], expected, rtol=1e-6
    )
    assert car["area"] == pytest.approx(car["box_width"] * car["box_height"])


def test_settings(place):
    everything = source(place, scenes="all").read()
    assert len(everything.images) == 2
    assert (everything.objects["category"] == "car").sum() == 2


def test_boxes_end_at_the_border_and_behind_the_camera():
    poses = [((0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0))] * 2
    camera = (poses, np.array(INTRINSIC), (1600, 900))
    # Camera coordinates themselves: z forward. One metre cubes.
    centres = np.array([[0, 0, 10.5], [8.2, 0, 10.5], [0, 0, -5], [50, 0, 10], [0, 0, 0.0]])
    upright = np.tile([1.0, 0.0, 0.0, 0.0], (5, 1))
    found = visible_boxes(centres, np.ones((5, 3)), upright, *camera)
    np.testing.assert_allclose(found[0], [750, 400, 100, 100])
    left = 800 + FOCAL * 7.7 / 11
    np.testing.assert_allclose(found[1], [left, 400, 1600 - left, 100])
    assert np.isnan(found[2:4]).all()
    # Around the camera: what is before it fills the image's middle.
    np.testing.assert_allclose(found[4], [0, 0, 1600, 900])


def test_there_are_150_validation_scenes():
    scenes = validation_scenes()
    assert len(scenes) == 150
    assert {"scene-0003", "scene-0103", "scene-0916", "scene-1073"} <= scenes
    assert not {"scene-0001", "scene-0061", "scene-0918"} & scenes


def test_both_spellings_of_a_category():
    for name in ("human.pedestrian.personal_mobility", "human.pedestrian.personal.mobility"):
        assert label_of(name) == "pedestrian using personal mobility device"
    assert label_of("movable_object.debris") is None


def rewrite(place, table, change):
    file = place / "v1.0-mini" / f"{table}.json"
    rows = json.loads(file.read_text())
    change(rows)
    file.write_text(json.dumps(rows))


def test_mistakes_name_the_culprit(place, monkeypatch):
    with pytest.raises(UserError, match=r"v1.0-trainval.*does not exist"):
        NuScenesAnnotations(place).read()
    rewrite(place, "category", lambda rows: [r.update(name="vehicle.tram") for r in rows])
    with pytest.raises(UserError, match=r"no category 'vehicle.tram'"):
        source(place).read()
    rewrite(place, "category", lambda rows: [r.update(name="vehicle.car") for r in rows])
    rewrite(place, "instance", lambda rows: rows[1].update(category_token="lost"))
    with pytest.raises(UserError, match=r"category.json' lacks 1 of the entries .* 'lost'"):
        source(place).read()
    rewrite(place, "instance", lambda rows: rows.pop(1))
    with pytest.raises(UserError, match=r"instance.json' lacks 1 of the entries .* 'instance2'"):
        source(place).read()
    rewrite(place, "ego_pose", lambda rows: rows.clear())
    with pytest.raises(UserError, match=r"ego_pose.json' lacks 1 of the entries .* 'pose'"):
        source(place).read()
    rewrite(place, "sample", lambda rows: rows[0].pop("scene_token"))
    with pytest.raises(UserError, match=r"is not nuScenes' table sample"):
        source(place).read()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'ood_lab\[nuscenes\]'"):
        source(place).read()


def test_a_missing_image(place):
    (place / "samples" / "CAM_FRONT" / "key.jpg").unlink()
    with pytest.raises(UserError, match=r"1 of 1 images are not in .*annotations.root=DIR"):
        source(place).read()
