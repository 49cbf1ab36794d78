"""Labels that cannot be right are named with their file and row."""

import numpy as np
import pandas as pd
import pytest
from pictures import folders, picture
from PIL import Image

from ood_lab.common.errors import UserError
from ood_lab.data.datamodules.folder import FolderDataModule
from ood_lab.data.sources.manifest import read_manifest


@pytest.fixture
def photos(tmp_path):
    """Twelve images and a table of them that is sound."""
    labels = ["cat"] * 6 + ["dog"] * 6
    paths = [picture(tmp_path / f"{i}.png", i).name for i in range(12)]
    table = pd.DataFrame({"path": paths, "label": labels})
    table.to_csv(tmp_path / "list.csv", index=False)
    return tmp_path, table


def module(folder, splits=("list.csv",), **options):
    sources = {split: folder / name for split, name in zip(("train", "test"), splits, strict=False)}
    return FolderDataModule(sources, {}, **options)


def refuse(match, data, at="setup"):
    with pytest.raises(UserError, match=match) as caught:
        getattr(data, at)()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("empty", ["", "-1"])
def test_one_row_without_a_label(photos, empty):
    folder, table = photos
    table.loc[[4, 9], "label"] = empty
    table.to_csv(folder / "list.csv", index=False)
    refuse(
        r"list\.csv: no label in 2 of 12 rows, first in row 5 \('.*4\.png'\): give", module(folder)
    )
    few = module(folder, shots=2)  # takes images that have a label
    few.setup()
    assert (few.splits["train"].labels >= 0).all()
    table.drop([4, 9]).to_csv(folder / "train.csv", index=False)
    of_test = module(folder, ("train.csv", "list.csv"))
    of_test.setup()  # an ID image may be of an unknown class where nothing is learned from it
    assert any("first in row 5" in note for note in of_test.report.notes)


def test_labels_that_are_measured_numbers(photos):
    folder, table = photos
    table["label"] = [0.5, 1.5, 2.5] * 4
    table.to_csv(folder / "list.csv", index=False)
    refuse(r"list\.csv' row 1: label 0\.5 is a number that is not whole", module(folder))
    table["label"] = [0.0, 1.0, 2.5] * 4
    table.to_csv(folder / "list.csv", index=False)
    refuse(r"list\.csv' row 3: label 2\.5", module(folder))
    read_manifest(folder / "list.csv", classes=[])  # of an OOD set, labels are words
    table["label"] = ["1.5 T", "3 T"] * 6
    table.to_csv(folder / "list.csv", index=False)
    assert read_manifest(folder / "list.csv")[1] == ["1.5 T", "3 T"]


def test_one_file_with_two_labels(photos):
    folder, table = photos
    extra = pd.DataFrame({"path": ["2.png"], "label": ["dog"]})
    pd.concat([table, extra]).to_csv(folder / "list.csv", index=False)
    named = r"2\.png' has two labels: 'cat' in row 3 of .*list\.csv and 'dog' in row 13 of .*: keep"
    refuse(named, module(folder))
    table.to_csv(folder / "list.csv", index=False)
    pd.concat([extra, table.tail(3)]).to_csv(folder / "test.csv", index=False)
    named = (
        r"2\.png' has two labels: 'cat' in row 3 of .*list\.csv and 'dog' in row 1 of .*test\.csv"
    )
    refuse(named, module(folder, ("list.csv", "test.csv")))


def test_classes_that_differ_in_case_alone(tmp_path):
    folders(tmp_path / "photos", ("Cat", "cat", "dog"))
    refuse("classes 'Cat' and 'cat', which differ", module(tmp_path, ("photos",)))
    folders(tmp_path / "letters", ("A", "a", "b"))  # handwriting
    module(tmp_path, ("letters",)).setup()


def test_blanks_around_a_label_mean_nothing(photos):
    folder, table = photos
    table["label"] = " " + table["label"]
    table.to_csv(folder / "spaced.csv", index=False)
    assert read_manifest(folder / "spaced.csv")[1] == ["cat", "dog"]


def test_what_nothing_can_be_learned_from(photos):
    folder, table = photos
    folders(folder / "one", ("cat",))
    refuse("one has one class, 'cat'", module(folder, ("one",)), "require_labels")
    table.rename(columns={"label": "classes"}).to_csv(folder / "other.csv", index=False)
    found = r"other\.csv: \d+ of \d+ images have no label"
    refuse(found, module(folder, ("other.csv",)), "require_labels")
    module(folder).require_labels()


def test_images_of_a_pixel_are_told(tmp_path):
    folders(tmp_path / "photos")
    Image.fromarray(np.zeros((1, 1, 3), np.uint8)).save(tmp_path / "photos/cat/pixel.png")
    data = module(tmp_path, ("photos",))
    data.setup()
    (warning,) = [w for w in data.report.warnings if "below 8 pixels" in w]
    assert "1, such as" in warning
    assert "pixel.png' (1×1)" in warning
