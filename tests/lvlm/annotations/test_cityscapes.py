"""Cityscapes in its documented layout."""

import json
from collections import Counter

import pytest

from ood_lab.common.errors import UserError
from ood_lab.lvlm.annotations.cityscapes import LABELS, CityscapesAnnotations

SQUARE = [[10, 10], [30, 10], [30, 20], [10, 20]]


@pytest.fixture
def place(tmp_path):
    for city, stem in (("ulm", "ulm_000000_000019"), ("bonn", "bonn_000001_000019")):
        image = tmp_path / "leftImg8bit" / "val" / city / f"{stem}_leftImg8bit.png"
        image.parent.mkdir(parents=True)
        image.touch()
        write(tmp_path, city, stem, [{"label": "car", "polygon": SQUARE}])
    return tmp_path


def write(place, city, stem, objects):
    file = place / "gtFine" / "val" / city / f"{stem}_gtFine_polygons.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"imgHeight": 1024, "imgWidth": 2048, "objects": objects}))
    return file


def test_polygons_become_objects(place):
    write(
        place,
        "ulm",
        "ulm_000000_000019",
        [
            {"label": "sky", "polygon": SQUARE},
            {"label": "ego vehicle", "polygon": SQUARE},
            {"label": "traffic sign", "polygon": [[0, 0], [8, 0], [0, 4]]},
            {"label": "persongroup", "polygon": [[2040, 0], [2060, 0], [2060, 10], [2040, 10]]},
            {"label": "bus", "polygon": SQUARE, "deleted": 1},
        ],
    )
    found = CityscapesAnnotations(place).read()
    assert found.domain == "driving"
    assert list(found.fields) == list(found.categories)
    sizes = {"flat": 4, "human": 2, "vehicle": 7, "construction": 6, "object": 3, "nature": 1}
    assert Counter(found.fields.values()) == sizes
    assert found.fields["rider"] == "human"
    assert found.categories == LABELS
    assert len(LABELS) == 23
    assert found.images["image"].tolist() == ["bonn_000001_000019", "ulm_000000_000019"]
    table = found.objects.merge(found.images, on="image")
    assert table["category"].tolist() == ["car", "traffic sign", "person"]
    assert table["crowd"].tolist() == [False, False, True]
    assert table["area"].tolist() == [200, 16, 80]
    assert table["box_x"].tolist() == [10, 0, 2040]
    assert table["box_width"].tolist() == [20, 8, 8]  # within the image
    file = str(found.root / table["file"][0])
    assert file.endswith("leftImg8bit/val/bonn/bonn_000001_000019_leftImg8bit.png")
    assert (table["width"] == 2048).all()


def test_an_image_without_objects_stays(place):
    write(place, "ulm", "ulm_000000_000019", [])
    write(place, "bonn", "bonn_000001_000019", [{"label": "sky", "polygon": SQUARE}])
    found = CityscapesAnnotations(place, categories=["car"]).read()
    assert len(found.images) == 2
    assert found.objects.empty


def test_mistakes_name_the_culprit(place, tmp_path):
    with pytest.raises(UserError, match=r"does not exist"):
        CityscapesAnnotations(place, split="vla").read()
    file = write(place, "ulm", "ulm_000000_000019", [{"label": "trafic sign", "polygon": SQUARE}])
    with pytest.raises(
        UserError, match=r"unknown label 'trafic sign': did you mean 'traffic sign'"
    ):
        CityscapesAnnotations(place).read()
    file.write_text('{"shapes": []}')
    with pytest.raises(UserError, match="is not a file of Cityscapes' polygons"):
        CityscapesAnnotations(place).read()
    file.write_text('{"imgHeight": 10')
    with pytest.raises(UserError, match="is no whole JSON"):
        CityscapesAnnotations(place).read()
    write(place, "ulm", "ulm_000000_000019", [])
    next(place.glob("leftImg8bit/val/ulm/*")).unlink()
    with pytest.raises(UserError, match=r"1 of 2 images are not in .*leftImg8bit/val"):
        CityscapesAnnotations(place).read()
    (tmp_path / "empty" / "gtFine" / "val").mkdir(parents=True)
    with pytest.raises(UserError, match=r"gtFine_trainvaltest.zip"):
        CityscapesAnnotations(tmp_path / "empty").read()
