"""Measured levels as data: the lists of a division's cells, and a table of levels."""

import numpy as np
import pandas as pd
import pytest
from pictures import folders, picture

from ood_lab.common.errors import UserError
from ood_lab.data.datamodules.folder import FolderDataModule
from ood_lab.data.sources.manifest import read_manifest


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    place = tmp_path_factory.mktemp("division")
    folders(place / "train", each=12, first_seed=1)
    for i in range(12):
        picture(place / "pool" / f"{i:02}.jpg", seed=500 + i)
    cells = place / "lists"
    cells.mkdir()
    for row in range(3):
        for column in range(2):
            names = [f"{2 * (2 * row + column) + k:02}.jpg" for k in range(2)]
            lines = "".join(f"{name} {100 + row}\n" for name in names)
            (cells / f"cov_{row}_sem_{column}.txt").write_text(lines)
    (cells / "README").write_text("not a list")
    return place


def test_a_folder_of_cells_is_one_table(root):
    table, classes = read_manifest(root / "lists", root / "pool", [])
    assert classes == []
    assert len(table) == 12
    assert (table["label"] == -1).all()
    counts = table.groupby(["covariate_level", "semantic_level"]).size()
    assert len(counts) == 6
    assert set(counts) == {2}
    first = table[(table.covariate_level == 2) & (table.semantic_level == 1)]
    assert [p[-6:] for p in first["path"]] == ["10.jpg", "11.jpg"]


def module(root, **options):
    return FolderDataModule(
        {"train": root / "train"}, {"pool": root / "pool"}, num_workers=0, **options
    )


def levels_of(data, **changes):
    table = data.splits["pool"].table[["path"]].reset_index(names="index")
    return table.assign(
        dataset="pool", semantic_level=np.arange(12) % 3, covariate_level=1, **changes
    )


def test_levels_of_a_file(root, tmp_path):
    plain = module(root)
    plain.setup()
    assert "semantic_level" not in plain.splits["pool"].table
    shuffled = levels_of(plain).sample(frac=1, random_state=0)  # rows are joined by index
    shuffled.to_parquet(tmp_path / "levels.parquet")
    data = module(root, levels=tmp_path / "levels.parquet")
    data.setup()
    data.use_transform(eval=lambda image: np.zeros((3, 1, 1)))
    assert data.splits["pool"].table["semantic_level"].tolist() == [0, 1, 2] * 4
    assert data.splits["pool"][4]["semantic_level"] == 1
    assert data.splits["pool"].identity == plain.splits["pool"].identity
    assert any("levels" in note for note in data.report.notes)


def test_levels_of_a_few_batches_are_those_of_their_images(root, tmp_path):
    plain = module(root)
    plain.setup()
    levels_of(plain).to_parquet(tmp_path / "levels.parquet")
    options = {"batch_size": 1, "eval_batch_size": 2, "max_batches": 2}
    data = module(root, levels=tmp_path / "levels.parquet", **options)
    data.setup()
    assert len(data.splits["train"]) == 2
    few = data.splits["pool"].table
    assert len(few) == 4
    every = levels_of(plain).set_index("path")
    for level in ("semantic_level", "covariate_level"):
        assert few[level].tolist() == every.loc[few["path"], level].tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": "other"}, "has levels of other, the data has pool"),
        ({"path": "elsewhere.jpg"}, "made for other images of 'pool'"),
    ],
)
def test_levels_of_other_images_are_refused(root, tmp_path, changes, message):
    plain = module(root)
    plain.setup()
    levels_of(plain).assign(**changes).to_csv(tmp_path / "levels.csv", index=False)
    with pytest.raises(UserError, match=message):
        module(root, levels=tmp_path / "levels.csv").setup()


def test_a_file_without_levels_is_refused(root, tmp_path):
    pd.DataFrame({"path": ["a"]}).to_csv(tmp_path / "x.csv", index=False)
    with pytest.raises(UserError, match="has no column 'dataset'"):
        module(root, levels=tmp_path / "x.csv").setup()
    with pytest.raises(UserError, match="does not exist"):
        module(root, levels=tmp_path / "y.csv").setup()
