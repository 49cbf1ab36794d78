"""LVIS v1 in its documented layout."""

import json

import pytest

from ood_lab.common.errors import UserError
from ood_lab.lvlm.annotations.coco import CocoAnnotations
from ood_lab.lvlm.annotations.lvis import LvisAnnotations

URL = "http://images.cocodataset.org/{}"
IMAGE = {"width": 640, "height": 480, "license": 1, "neg_category_ids": [2]}
DOCUMENT = {
    "info": {},
    "licenses": [],
    "images": [
        IMAGE | {"id": 1, "coco_url": URL.format("val2017/1.jpg")},
        IMAGE | {"id": 2, "coco_url": URL.format("train2017/2.jpg")},
    ],
    "annotations": [
        {"id": 5, "image_id": 2, "category_id": 1, "bbox": [1, 2, 3, 4], "area": 10.5},
    ],
    "categories": [
        {"id": 1, "name": "aerosol_can", "synonyms": ["spray_can"], "frequency": "c"},
        {"id": 2, "name": "bow_(weapon)", "synonyms": [], "frequency": "r"},
    ],
}


@pytest.fixture
def place(tmp_path):
    for name in ("val2017/1.jpg", "train2017/2.jpg"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    (tmp_path / "lvis_v1_val.json").write_text(json.dumps(DOCUMENT))
    return tmp_path


def test_federated_table(place):
    found = LvisAnnotations(place / "lvis_v1_val.json", place).read()
    assert found.categories == ("aerosol can", "bow (weapon)")
    assert found.images["file"].tolist() == ["val2017/1.jpg", "train2017/2.jpg"]
    assert found.objects["category"].tolist() == ["aerosol can"]
    assert not found.objects["crowd"].any()
    assert len(found.identity) == 64
    assert (found.fields, found.domain) == ({}, "natural")
    assert found.only(["aerosol can"]).categories == ("aerosol can",)


def test_mistakes_name_the_remedy(place):
    file = place / "lvis_v1_val.json"
    with pytest.raises(UserError, match=r"`file_name`.*other formats are annotations=lvis"):
        CocoAnnotations(file, place).read()
    document = json.loads(file.read_text())
    del document["images"][0]["coco_url"]
    file.write_text(json.dumps(document))
    with pytest.raises(UserError, match=r"is not LVIS v1.*annotations=coco"):
        LvisAnnotations(file, place).read()
    file.write_text(json.dumps(DOCUMENT))
    (place / "val2017/1.jpg").unlink()
    with pytest.raises(UserError, match=r"1 of 2 images are not .*'val2017/1.jpg'"):
        LvisAnnotations(file, place).read()
