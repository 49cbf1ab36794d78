import re
import shutil

import numpy as np
import pandas as pd
import pytest
from pictures import folders, picture, truncate
from PIL import Image

from ood_lab.common.errors import UserError
from ood_lab.data.checks import dataset_checks
from ood_lab.data.checks.dataset_checks import Checking, check_data
from ood_lab.data.dataset import ImageDataset
from ood_lab.data.sources.image_files import FileDataset
from ood_lab.data.sources.image_stores import Files
from ood_lab.data.sources.manifest import read_manifest


class Drawn(ImageDataset):
    def load_image(self, index):
        return Image.new("RGB", (4, 4))


@pytest.fixture
def sets(tmp_path):
    for i, name in enumerate(["train", "val", "test"]):
        folders(tmp_path / name, first_seed=10_000 * i)
    folders(tmp_path / "far", classes=["sea"], each=10, first_seed=90_000)

    def read():
        _, classes = read_manifest(tmp_path / "train")
        return {
            name: FileDataset(
                name,
                read_manifest(tmp_path / name, classes=[] if name == "far" else classes)[0],
                [] if name == "far" else classes,
            )
            for name in ("train", "val", "test", "far")
        }

    return tmp_path, read


def test_counts_sizes_and_formats(sets):
    root, read = sets
    (root / "train/owl/000.jpg").unlink()
    picture(root / "far/sea/long.jpg", size=(40, 8))
    train, _, _, far = check_data(read(), Checking()).sets
    assert (train.images, train.classes, train.per_class) == (17, 3, (5, 6))
    assert (train.median_size, train.sides, train.formats) == ((16, 16), (16, 16), {"JPEG": 1.0})
    assert (far.images, far.classes, far.per_class, far.sides) == (11, 0, None, (8, 40))
    assert far.grey == 0


def test_clean_data_gives_no_warning(sets):
    report = check_data(sets[1](), Checking())
    assert report.warnings == []
    assert report.notes == []
    assert report.broken == {}


def test_unreadable_files_stop_or_are_listed(sets):
    root, read = sets
    cut = truncate(root / "train/cat/002.jpg")
    (root / "far/sea/003.jpg").write_text("not an image")
    with pytest.raises(UserError, match=f"^2 of 64 images cannot be read: '{cut}' .*truncated"):
        check_data(read(), Checking())
    report = check_data(read(), Checking(on_broken="skip"))
    assert report.broken == {"train": [2], "far": [3]}
    assert [s.broken for s in report.sets] == [1, 0, 0, 1]
    # A cut JPEG has a sound header.
    opened = check_data(read(), Checking(check="headers", on_broken="skip"))
    assert opened.broken == {"far": [3]}
    assert "0 of 64 files were decoded" in opened.notes[0]
    assert check_data(read(), Checking(check="off")).broken == {}


def test_every_kind_of_odd_but_sound_file_passes(sets):
    root, read = sets
    odd = root / "far" / "sea"
    Image.new("CMYK", (16, 16)).save(odd / "cmyk.jpg")
    Image.new("L", (16, 16)).save(odd / "grey.jpg")
    Image.new("RGBA", (16, 16)).save(odd / "ünï côdé.png")
    Image.fromarray(np.full((16, 16), 40_000, np.uint16)).save(odd / "deep 16.png")
    report = check_data(read(), Checking())
    assert report.broken == {}
    assert report.sets[-1].grey == pytest.approx(4 / 14)  # all four have no colour
    assert report.sets[-1].formats == {"JPEG": 12 / 14, "PNG": 2 / 14}


def test_shared_content_is_found_by_content(sets):
    root, read = sets
    shutil.copy(root / "train/cat/000.jpg", root / "test/dog/copy of it.jpg")
    shutil.copy(root / "val/cat/001.jpg", root / "test/cat/900.jpg")
    shutil.copy(root / "val/cat/001.jpg", root / "far/sea/900.jpg")
    shutil.copy(root / "test/owl/002.jpg", root / "far/sea/901.jpg")
    overlaps = {(o.first, o.second): o for o in check_data(read(), Checking()).overlaps}
    counts = {pair: overlap.count for pair, overlap in overlaps.items()}
    assert counts == {("train", "test"): 1, ("val", "test"): 1, ("ID", "far"): 2}
    assert overlaps["train", "test"].example == (
        str(root / "test/dog/copy of it.jpg"),
        str(root / "train/cat/000.jpg"),
    )


def test_the_same_content_twice_within_a_set_is_found(sets):
    root, read = sets
    shutil.copy(root / "train/cat/000.jpg", root / "train/dog/copy.jpg")
    shutil.copy(root / "far/sea/003.jpg", root / "far/sea/904.jpg")
    shutil.copy(root / "far/sea/003.jpg", root / "far/sea/905.jpg")
    train, far = check_data(read(), Checking()).findings
    assert str(train) == (
        "1 image of train with the content of another one in it, with 2 labels in 1 case: "
        f"{root}/train/dog/copy.jpg = {root}/train/cat/000.jpg"
    )
    assert str(far).startswith("2 images of far with the content of another one in it: ")
    assert far.sets == ("far",)
    twice = read()
    twice["far"] = FileDataset("far", pd.concat([twice["far"].table.head(2)] * 2), [])
    assert "far/sea/000.jpg is listed twice" in check_data(twice, Checking()).warnings[-1]


def test_only_files_of_equal_size_are_hashed(sets, monkeypatch):
    root, read = sets
    splits = read()
    for path in {p for data in splits.values() for p in data.paths}:
        with open(path, "ab") as file:  # JPEG readers ignore what follows the image
            file.write(b"\0" * (abs(hash(path)) % 100_000))
    shutil.copy(root / "train/cat/000.jpg", root / "far/sea/000.jpg")
    asked = []
    hashes = Files.sha256
    monkeypatch.setattr(Files, "sha256", lambda files, path: asked.append(path) or hashes(path))
    assert [o.count for o in check_data(splits, Checking()).overlaps] == [1]
    assert len(asked) < 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda i, f: picture(f.with_suffix(".png"), i), "file format: ID 100% JPEG, far 100% PNG"),
        (
            lambda i, f: picture(f, i, size=(48, 30)),
            "size, AUROC 100%: ID 16 px .*, far 38 px",
        ),
        (
            lambda i, f: picture(f, i, size=(8, 8)),
            "size, AUROC 100%: ID 16 px .*, far 8 px",
        ),
        (
            lambda i, f: Image.open(picture(f, i)).convert("L").convert("RGB").save(f),
            "colour: ID 0% grey images, far 100%",
        ),
    ],
)
def test_giveaways(sets, change, expected):
    root, read = sets
    for i, file in enumerate(sorted((root / "far").rglob("*.jpg"))):
        file.unlink()
        change(70_000 + i, file)
    (warning,) = check_data(read(), Checking()).warnings
    assert warning.startswith("far can be told from ID by ")
    assert re.search(expected, warning)


def test_training_images_of_another_size_than_those_of_test_are_one_finding(sets):
    root, read = sets
    for i, file in enumerate(sorted((root / "train").rglob("*.jpg"))):
        picture(file, 70_000 + i, size=(48, 48))
    (finding,) = check_data(read(), Checking()).findings
    assert finding.sets == ("test",)
    sizes = "size, AUROC 100%: train 48 px (median side), test 16 px"
    assert finding.text.startswith(f"train can be told from test by {sizes}")


@pytest.mark.slow
def test_large_sets_are_sampled_and_it_is_said(sets, monkeypatch):
    root, read = sets
    monkeypatch.setattr(dataset_checks, "FULL_UP_TO", 60)
    monkeypatch.setattr(dataset_checks, "SAMPLE", 20)
    whole = [min(folder.rglob("*.jpg")) for folder in root.iterdir()]  # a set needs an image
    for file in {*root.rglob("*.jpg")} - {*whole}:
        truncate(file)
    first = check_data(read(), Checking(on_broken="skip"), seed=1)
    assert 20 - len(whole) <= sum(map(len, first.broken.values())) <= 20
    (note,) = first.notes
    assert note.startswith("20 of 64 files were decoded, the rest only opened")
    assert check_data(read(), Checking(on_broken="skip"), seed=1).broken == first.broken
    assert check_data(read(), Checking(on_broken="skip"), seed=2).broken != first.broken
    everything = check_data(read(), Checking(check="full", on_broken="skip"))
    assert sum(map(len, everything.broken.values())) == 64 - len(whole)


def test_the_second_check_decodes_nothing(sets, monkeypatch):
    root, read = sets
    truncate(root / "val/cat/000.jpg")
    cold = check_data(read(), Checking(cache_dir=root / "cache", on_broken="skip"))
    looked = []
    load = dataset_checks.load_rgb
    monkeypatch.setattr(dataset_checks, "load_rgb", lambda p, *s: looked.append(p) or load(p, *s))
    warm = check_data(read(), Checking(cache_dir=root / "cache", on_broken="skip"))
    assert looked == [str(root / "val/cat/000.jpg")]  # failures are looked at again
    assert warm == cold


def test_classes_without_images_and_sets_without_files():
    def drawn(name, labels, classes):
        table = pd.DataFrame({"path": [f"{name}/{i}" for i in range(len(labels))], "label": labels})
        return Drawn(name, table, classes, "0" * 64)

    classes = ["a", "b", "c"]
    splits = {
        "train": drawn("train", [0, 0, 1, 2], classes),
        "test": drawn("test", [0, -1, 1], classes),
        "far": drawn("far", [-1, -1], []),
    }
    report = check_data(splits, Checking())
    assert report.warnings == ["1 of 3 classes have no image in test: c"]
    assert [s.per_class for s in report.sets] == [(1, 2), (0, 1), None]
    assert [s.median_size for s in report.sets] == [None] * 3
    assert "median size" not in report.rows[0]


def test_the_table_has_a_row_a_set(sets):
    root, read = sets
    truncate(root / "far/sea/000.jpg")
    shutil.copy(root / "train/cat/000.jpg", root / "test/cat/900.jpg")
    report = check_data(read(), Checking(on_broken="skip"))
    rows = {row["set"]: row for row in report.rows}
    assert rows["train"]["median size"] == "16×16"
    assert rows["train"]["format"] == "JPEG"
    assert (rows["far"]["broken"], rows["train"]["broken"]) == ("1", "0")
    assert any("train/cat/000.jpg" in warning for warning in report.warnings)
