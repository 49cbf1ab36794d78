"""COCO's format: the table, its checks, and the builtin scenes through it."""

import json

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO

from ood_lab.builtin.scenes import THINGS, ScenesDataset, level_of, visible, write_coco
from ood_lab.builtin.scenes.annotations import ScenesAnnotations
from ood_lab.common.errors import UserError
from ood_lab.lvlm.annotations.annotation_table import BOX
from ood_lab.lvlm.annotations.coco import CocoAnnotations

DOCUMENT = {
    "info": {"description": "stand-in"},
    "licenses": [],
    "images": [
        {"id": 7, "file_name": "a.jpg", "width": 64, "height": 48, "license": 1},
        {"id": 3, "file_name": "b.jpg", "width": 32, "height": 32, "license": 1},
        {"id": 9, "file_name": "empty.jpg", "width": 32, "height": 32, "license": 1},
    ],
    "annotations": [
        {
            "id": 1,
            "image_id": 3,
            "category_id": 18,
            "bbox": [1.5, 2.0, 10.0, 5.5],
            "area": 41.25,
            "iscrowd": 0,
            "segmentation": [[1.5, 2.0, 11.5, 2.0, 11.5, 7.5]],
        },
        {
            "id": 2,
            "image_id": 7,
            "category_id": 1,
            "bbox": [0, 0, 64, 48],
            "area": 1000,
            "iscrowd": 1,
            "segmentation": {"size": [48, 64], "counts": [0, 1000, 2072]},
        },
        {
            "id": 3,
            "image_id": 7,
            "category_id": 1,
            "bbox": [5, 5, 4, 4],
            "attributes": {"occluded": False, "colour": "red"},
        },
    ],
    "categories": [
        {"supercategory": "person", "id": 1, "name": "person"},
        {"supercategory": "animal", "id": 18, "name": "dog"},
        {"supercategory": "animal", "id": 17, "name": "cat"},
    ],
}


@pytest.fixture
def place(tmp_path):
    """The documented layout: a JSON file, and a folder of images."""
    (tmp_path / "val2017").mkdir()
    for image in DOCUMENT["images"]:
        name, size = image["file_name"], (image["width"], image["height"])
        Image.new("RGB", size).save(tmp_path / "val2017" / name)
    save(tmp_path, DOCUMENT)
    return tmp_path


def save(place, document):
    (place / "instances.json").write_text(json.dumps(document))


def source(place, **options):
    return CocoAnnotations(place / "instances.json", place / "val2017", **options)


def changed(**parts):
    return json.loads(json.dumps(DOCUMENT)) | parts


def test_one_table(place):
    found = source(place).read()
    assert found.categories == ("person", "dog", "cat")
    assert found.images["image"].tolist() == [7, 3, 9]
    assert found.images[["width", "height"]].to_numpy().tolist() == [[64, 48], [32, 32], [32, 32]]
    objects = found.objects
    assert objects["category"].tolist() == ["dog", "person", "person"]
    assert objects["crowd"].tolist() == [False, True, False]
    assert objects["area"].tolist() == [41.25, 1000, 16]  # of the box where none is given
    assert objects["attributes"].tolist() == [{}, {}, {"occluded": False, "colour": "red"}]
    table = objects.merge(found.images, on="image")
    files = [found.root / file for file in table["file"]]
    assert files == [place / "val2017" / f"{n}.jpg" for n in "baa"]
    assert table.iloc[0][["box_x", "box_y", "box_width", "box_height"]].tolist() == [
        1.5,
        2,
        10,
        5.5,
    ]
    assert table.iloc[0][["width", "height"]].tolist() == [32, 32]


def test_fields_are_supercategories_and_natural_images_name_coco(place):
    found = source(place).read()
    assert found.fields == {"person": "person", "dog": "animal", "cat": "animal"}
    assert found.domain == ""
    entries = [{"id": 1, "name": "person"}, {"id": 18, "name": "dog", "supercategory": "none"}]
    entries.append({"id": 17, "name": "cat", "supercategory": 3})
    save(place, changed(categories=entries, info={"description": "COCO 2017 Dataset"}))
    bare = source(place).read()
    assert bare.fields == {}
    assert bare.domain == "natural"
    assert bare.identity == found.identity  # scores that are kept stay theirs


def test_categories_can_be_chosen(place):
    found = source(place, categories=["cat", "dog"]).read()
    assert found.categories == ("cat", "dog")
    assert found.objects["category"].tolist() == ["dog"]
    assert len(found.images) == 3
    with pytest.raises(UserError, match="no category 'dgo': did you mean 'dog'"):
        source(place, categories=["dgo"]).read()


def test_identity_is_that_of_the_content(place, tmp_path_factory):
    first = source(place).read().identity
    elsewhere = tmp_path_factory.mktemp("copy") / "data"
    place.rename(elsewhere)
    assert source(elsewhere, name="other").read().identity == first
    assert source(elsewhere, categories=["dog"]).read().identity != first
    document = changed()
    document["annotations"][2]["attributes"]["colour"] = "blue"
    save(elsewhere, document)
    assert source(elsewhere).read().identity != first


def lists(image):
    return changed(images=[{**DOCUMENT["images"][0], **image}, *DOCUMENT["images"][1:]])


def marks(annotation):
    return changed(annotations=[{**DOCUMENT["annotations"][0], **annotation}])


def names(*given):
    entries = zip(DOCUMENT["categories"], given, strict=True)
    return changed(categories=[{**entry, "name": name} for entry, name in entries])


@pytest.mark.parametrize(
    "box", [[1.5, 2.0, 10.0, 0.0], [-0.5, 30.13, 32.99, 2.2], [0, 0, 33, 34], [32, 32, 0, 0]]
)
def test_what_coco_itself_contains_is_read(place, box):
    """Two boxes of train2017 have no height; rounding makes some reach out by a pixel or two."""
    save(place, marks({"bbox": box}))
    assert source(place).read().objects.loc[0, list(BOX)].tolist() == box


def test_a_size_may_be_that_of_the_image_as_exif_turns_it(place):
    exif = Image.Exif()
    exif[274] = 6
    Image.new("RGB", (48, 64)).save(place / "val2017" / "a.jpg", exif=exif)
    assert len(source(place).read().images) == 3


@pytest.mark.parametrize(
    ("document", "culprit"),
    [
        ([{"image_id": 1, "caption": "a dog"}], "is not COCO instances .Expected `object`"),
        (changed(annotations=[{"image_id": 7, "id": 1, "caption": "a dog"}]), "annotations=lvis"),
        (changed(annotations=[{"image_id": 7, "category_id": 1}]), r"`bbox` - at `\$.annotations"),
        (changed(categories={"dog": 1}), "Expected `array`, got `object`"),
        (marks({"category_id": 99}), "annotation 1 of 1 has category_id=99, which .* categories"),
        (marks({"image_id": 99}), "annotation 1 of 1 has image_id=99, which .* images"),
        (lists({"id": 9}), "has the image id 9 twice"),
        (changed(images=[], annotations=[]), "lists no image"),
        (lists({"file_name": "missing.jpg"}), "1 of 3 images are not in .*'missing.jpg' for one"),
        (lists({"file_name": "../a.jpg"}), "images are not in"),
        (lists({"file_name": "b.jpg"}), "has the image 'b.jpg' twice"),
        (lists({"width": 0}), "not within its image"),
        (lists({"width": 128, "height": 96}), r"'a.jpg' \(id 7\) is 64 x 48 pixels, not 128 x 96"),
        (marks({"bbox": [1, 1, -5, 5]}), "annotation 1 of 1 has .* 32 x 32"),
        (marks({"bbox": [-9, 1, 10, 5]}), "1 of 1 annotations .* not within .* annotation 1 of 1"),
        (marks({"bbox": [20, 20, 30, 30]}), "give left, top, width, height; annotation 1 of 1 has"),
        (marks({"bbox": [40, 40, 8, 8]}), "annotation 1 of 1 has"),
        (changed(annotations=[DOCUMENT["annotations"][0]] * 2), "has the annotation id 1 twice"),
        (names("person", "dog", ""), "category with id 17 has no name"),
        (names("person", "dog", "  "), "category with id 17 has no name"),
        (names("person", "hot dog", "Hot_Dog "), "ids 18 and 17 .* 'hot dog' and 'Hot_Dog '"),
        (names("person", "dog", "c\nat"), r"category with id 17 has no name on one line: 'c\\nat'"),
        (changed(categories=[DOCUMENT["categories"][0]] * 2), "has the category id 1 twice"),
    ],
)
def test_a_wrong_file_is_one_line(place, document, culprit):
    save(place, document)
    with pytest.raises(UserError, match=culprit) as error:
        source(place).read()
    assert "\n" not in str(error.value)
    assert str(place) in str(error.value)


def test_a_file_cut_short_and_other_damage(place):
    file = place / "instances.json"
    whole = file.read_bytes()
    for content, culprit in (
        (whole[: len(whole) // 2], "is no whole JSON .Input data was truncated.: get it again"),
        (b"", "is no whole JSON"),
        (b"<html>Not found</html>", "is no whole JSON"),
        (b"PK\x03\x04", "is no whole JSON"),
    ):
        file.write_bytes(content)
        with pytest.raises(UserError, match=culprit):
            source(place).read()
    with pytest.raises(UserError, match=r"nearest: .*instances.json"):
        CocoAnnotations(place / "instance.json", place / "val2017").read()
    with pytest.raises(UserError, match="Is a directory"):
        CocoAnnotations(place, place / "val2017").read()


def test_images_one_folder_further_down_are_found(place):
    with pytest.raises(UserError, match=r"3 of 3 .*annotations.images=.*val2017"):
        CocoAnnotations(place / "instances.json", place).read()
    with pytest.raises(UserError, match="does not exist; nearest"):
        CocoAnnotations(place / "instances.json", place / "val2071").read()
    with pytest.raises(UserError, match=r"is a file; annotations.images is the folder"):
        CocoAnnotations(place / "instances.json", place / "instances.json").read()


def test_scenes_are_written_and_read_as_coco(tmp_path, capsys):
    source = ScenesAnnotations(tmp_path, n=24, seed=1, breaks=0.5, restyled=0.4)
    found = source.read()
    data = ScenesDataset("test", 24, 1, breaks=0.5, restyled=0.4)
    assert found.name == "scenes"
    assert found.categories == tuple(THINGS)
    assert found.images["semantic_level"].tolist() == data.table["semantic_level"].tolist()
    assert found.images["covariate_level"].tolist() == data.table["covariate_level"].tolist()
    assert [a["place"] for a in found.images["attributes"]] == data.table["place"].tolist()
    (file,) = tmp_path.glob("*/instances.json")
    (capsys.readouterr(), coco := COCO(str(file)), capsys.readouterr())
    row = 0
    for index in range(24):
        scene = data.scene(index)
        picture = Image.open(found.root / found.images["file"][index])
        np.testing.assert_array_equal(picture, data.load_image(index))
        for seen in visible(scene):
            entry = found.objects.iloc[row]
            row += 1
            assert entry["image"] == found.images["image"][index]
            assert entry["category"] == seen.item.look.thing
            assert entry[list(BOX)].tolist() == list(seen.box)
            assert entry["area"] == seen.area
            assert entry["attributes"] == scene.attributes(seen.item)
            assert entry["semantic_level"] == level_of(seen.item.look.thing, scene.place)
            # pycocotools reads the masks back as they were.
            np.testing.assert_array_equal(coco.annToMask(coco.anns[row]), seen.mask)
    assert row == len(found.objects)
    strangest = found.objects.groupby("image")["semantic_level"].max()
    assert strangest.tolist() == found.images["semantic_level"].tolist()


def test_scenes_are_written_once(tmp_path):
    source = ScenesAnnotations(tmp_path, n=3)
    first = source.read()
    (file,) = tmp_path.glob("*/instances.json")
    before = file.stat().st_mtime_ns
    assert source.read().identity == first.identity
    assert file.stat().st_mtime_ns == before
    ScenesAnnotations(tmp_path, n=3, seed=1).read()
    assert len(list(tmp_path.iterdir())) == 2  # and nothing half-written
    file.write_text("{}")
    with pytest.raises(UserError, match=r"instances\.json"):
        source.read()


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        write_coco(ScenesDataset("test", 2, 0), tmp_path / "file" / "scenes")
