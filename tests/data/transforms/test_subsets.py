"""A few images of each class: which, and that everything sees the same."""

import pandas as pd
import pytest
from lightning.pytorch import seed_everything
from pictures import folders

from ood_lab.builtin.vessels import VesselsDataset
from ood_lab.builtin.vessels.datamodule import VesselsDataModule
from ood_lab.common.errors import UserError
from ood_lab.data.datamodules.folder import FolderDataModule
from ood_lab.data.transforms.subsets import few_shot


@pytest.fixture(scope="module")
def vessels():
    return VesselsDataset("train", 88, seed=0)


def paths(data):
    return set(data.table["path"])


def test_each_class_gives_as_many_as_it_has(vessels):
    few = few_shot(vessels, 3, seed=1)
    assert set(few.labels.bincount().tolist()) == {3}
    assert len(few_shot(vessels, 1000, seed=1)) == len(vessels)
    assert few_shot(vessels, -1) is vessels
    assert few.classes == vessels.classes


def test_rows_are_those_of_the_source(vessels):
    few = few_shot(vessels, 2, seed=1)
    place = vessels.table.reset_index().set_index("path")["index"]
    for row in (0, 5, len(few) - 1):
        source = int(place[few.table["path"].iat[row]])
        assert few.load_image(row).tobytes() == vessels.load_image(source).tobytes()
        assert few.labels[row] == vessels.labels[source]


def test_the_draw_depends_on_the_seed_and_nothing_else(vessels):
    few = few_shot(vessels, 3, seed=1)
    assert few.identity == few_shot(vessels, 3, seed=1).identity
    assert few.identity != few_shot(vessels, 3, seed=2).identity
    assert paths(few_shot(vessels, 2, seed=1)) < paths(few)
    seed_everything(1, verbose=False)
    assert paths(few_shot(vessels, 3)) == paths(few)


@pytest.mark.parametrize("shots", [0, -2, 1.5])
def test_other_numbers_are_refused(vessels, shots):
    with pytest.raises(UserError, match=r"data\.shots="):
        few_shot(vessels, shots)


def test_files_keep_their_kind_whatever_their_order(tmp_path):
    folders(tmp_path / "train", each=6)
    folders(tmp_path / "near", classes=("x",), each=3, first_seed=9000)
    rows = [(str(p), p.parent.name) for p in sorted((tmp_path / "train").rglob("*.jpg"))]
    chosen = []
    for order in (rows, rows[::-1]):
        table = tmp_path / "train.csv"
        pd.DataFrame(order, columns=["path", "label"]).to_csv(table, index=False)
        data = FolderDataModule(
            {"train": str(table), "val": str(tmp_path / "train"), "test": str(tmp_path / "train")},
            {"near": str(tmp_path / "near")}, shots=2, shot_seed=3,
        )  # fmt: skip
        data.setup()
        chosen.append(paths(data.splits["train"]))
        assert len(data.splits["val"]) == 18
    assert chosen[0] == chosen[1]
    assert len(chosen[0]) == 6


def test_training_extraction_and_saved_lists_agree(tmp_path):
    data = VesselsDataModule(44, 22, 22, 4, 0, shots=2, shot_seed=0, batch_size=4)
    data.setup()
    assert len(data.splits["train"]) == 22
    assert any("2 a class" in note for note in data.report.notes)
    data.use_transform(eval=lambda image: None, train=lambda image: None)
    assert len(data.train_dataloader().dataset) == len(data.predict_dataset("train")) == 22
    data.save_splits(tmp_path)
    saved = pd.read_csv(tmp_path / "train.csv")
    assert set(saved["path"]) == paths(data.splits["train"])


def test_images_without_classes_cannot_be_few(vessels):
    bare = VesselsDataset("train", 22, seed=0)
    bare.table["label"] = -1
    with pytest.raises(UserError, match="needs class labels"):
        few_shot(bare, 1)
