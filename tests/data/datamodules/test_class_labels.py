"""Levels above the classes, and names in the label columns of lists."""

import numpy as np
import pandas as pd
import pytest
from pictures import folders, picture

from ood_lab.common.errors import UserError
from ood_lab.data.datamodules.class_labels import read_hierarchy
from ood_lab.data.datamodules.folder import FolderDataModule
from ood_lab.data.sources.source_settings import source_of

CSV = "class,kingdom,family\ncat,fur,cats\ndog,fur,dogs\nowl,feather,owls\nyak,fur,cows\n"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    folders(root / "train", each=10)
    folders(root / "test", each=2, first_seed=20_000)
    for i in range(3):
        picture(root / "far" / f"{i}.jpg", seed=40_000 + i)
    return root


@pytest.fixture
def hierarchy(tmp_path):
    file = tmp_path / "levels.csv"
    file.write_text(CSV)
    return file


def module(source, **options):
    given = {"train": source / "train", "test": source / "test"}
    return FolderDataModule(given | options.pop("id", {}), {"far": source / "far"}, **options)


def test_every_id_set_gets_the_levels_and_their_names(source, hierarchy):
    data = module(source, hierarchy=hierarchy)
    data.setup()
    labels = data.labels
    # The yak is known to the hierarchy, not to the data.
    names = [data.splits["train"].names_of(f"level_{level}") for level in range(3)]
    assert names == [("feather", "fur"), ("cats", "dogs", "owls"), ("cat", "dog", "owl")]
    assert labels.parents == [[1, 1, 0], [0, 1, 2]]
    assert labels.level_sizes == [2, 3, 3]
    for split in ("train", "val", "test"):
        table = data.splits[split].table
        np.testing.assert_array_equal(table["level_0"], np.array([1, 1, 0])[table["label"]])
        np.testing.assert_array_equal(table["level_2"], table["label"])
    assert "level_0" not in data.splits["far"].table
    data.use_transform(eval=lambda image: np.zeros(1))
    assert data.splits["test"][0]["levels"].tolist() == [1, 0, 0]
    assert data.sources["hierarchy"] == hierarchy


def test_a_hierarchy_is_part_of_what_the_data_is(source, hierarchy):
    plain, dated = module(source), module(source, hierarchy=hierarchy)
    plain.setup()
    dated.setup()
    assert plain.splits["train"].identity != dated.splits["train"].identity
    assert plain.splits["far"].identity == dated.splits["far"].identity


WRONG = {
    "class missing": ("owl,feather,owls\n", "", "lacks the class 'owl' of train"),
    "class twice": ("yak,fur,cows", "cat,fur,cats", "class 'cat' appears twice"),
    "two parents": ("feather,owls", "feather,cats", "family 'cats' has two parents in kingdom"),
    "no class column": ("class,", "clas,", "no column 'class': did you mean 'clas'?"),
    "empty cell": ("dog,fur,dogs", "dog,,dogs", "row 2 has no kingdom"),
    "more cells than columns": (
        "cat,fur,cats",
        "cat,fur,cats,x,y",
        "rows have more cells than its first line names",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_hierarchy_is_one_line(source, hierarchy, case):
    old, new, message = WRONG[case]
    hierarchy.write_text(CSV.replace(old, new))
    with pytest.raises(UserError) as error:
        module(source, hierarchy=hierarchy).setup()
    assert message in str(error.value)
    assert str(hierarchy) in str(error.value)
    assert "\n" not in str(error.value)


def test_other_files_that_are_no_hierarchy(tmp_path, source):
    bare = tmp_path / "bare.csv"
    bare.write_text("class\ncat\n")
    with pytest.raises(UserError, match="no level except 'class'"):
        read_hierarchy(bare)
    with pytest.raises(UserError, match=r"nearest: .*bare\.csv"):
        module(source, hierarchy=tmp_path / "bear.csv").setup()


def listing(source, split, file, **columns):
    paths = sorted(map(str, (source / split).rglob("*.jpg")))
    label = [path.split("/")[-2] for path in paths]
    made = {key: [of(i) for i in range(len(paths))] for key, of in columns.items()}
    pd.DataFrame({"path": paths, "label": label, **made}).to_csv(file, index=False)
    return file


def test_names_in_lists_are_numbered_as_train_says(source, tmp_path):
    train = listing(
        source,
        "train",
        tmp_path / "train.csv",
        category=lambda i: ("young", "old", "")[i % 3],
        shape=lambda i: i % 4,
        level_0=lambda i: "fur" if i < 20 else "feather",
        attribute_b=lambda i: i % 2,
        attribute_a=lambda i: 1,
    )
    test = listing(
        source,
        "test",
        tmp_path / "test.csv",
        category=lambda i: "young",
        attribute_a=lambda i: 1,
        attribute_b=lambda i: 0,
    )
    far = tmp_path / "far.csv"
    far.write_text(
        f"path,category,level_0\n{source}/far/0.jpg,old,x\n{source}/far/1.jpg,stuffed,\n"
    )
    data = module(source, id={"train": train, "test": test})
    data.ood_sources = {"far": source_of(far, "data.ood.far")}
    data.setup()
    table = data.splits["train"].table
    original = pd.read_csv(train, keep_default_na=False).set_index("path").loc[table["path"]]
    assert data.labels.categories == 2
    expected = original["category"].map({"old": 0, "young": 1, "": -1})
    assert table["category"].tolist() == expected.tolist()
    assert table["shape"].tolist() == original["shape"].tolist()
    assert data.labels.shapes == 4
    assert (data.splits["test"].table["category"] == 1).all()
    assert data.splits["far"].table["category"].tolist() == [0, -1]
    # The classes are added below the level that the list has.
    names = [data.splits["train"].names_of(f"level_{level}") for level in range(2)]
    assert names == [("feather", "fur"), ("cat", "dog", "owl")]
    assert data.labels.parents == [[1, 1, 0]]
    # The columns of test stand in another order in its file.
    assert data.labels.attributes == 2
    data.use_transform(eval=lambda image: np.zeros(1))
    assert data.splits["test"][0]["attributes"].tolist() == [0, 1]


def test_a_saved_split_is_read_back_with_its_levels(source, hierarchy, tmp_path):
    first = module(source, hierarchy=hierarchy, split_seed=3)
    first.setup()
    first.save_splits(tmp_path / "splits")
    lists = {s: tmp_path / "splits" / f"{s}.csv" for s in ("train", "val", "test")}
    again = module(source, id=lists)
    again.setup()
    assert again.labels == first.labels
    for split in lists:
        pd.testing.assert_frame_equal(again.splits[split].table, first.splits[split].table)


def test_lists_that_contradict_each_other(source, tmp_path):
    def refused(train, test, message):
        given = {
            "train": listing(source, "train", tmp_path / "train.csv", **train),
            "test": listing(source, "test", tmp_path / "test.csv", **test),
        }
        with pytest.raises(UserError, match=message):
            module(source, id=given).setup()

    old, young = (lambda i: "old"), (lambda i: "yuong")
    both = {"category": lambda i: ("old", "young")[i % 2]}
    refused(both, {"category": young}, "test has category 'yuong', .* did you mean 'young'")
    refused({"category": lambda i: 0}, {"category": old}, "test has category 'old', which train")
    refused({"attribute_a": lambda i: 1}, {"attribute_b": lambda i: 1}, "differ in column attri")
    refused({"level_0": lambda i: ("x", "y")[i % 2]}, {}, "'cat' of level_1 has 2 parents")
    levels = {"level_0": lambda i: "x", "level_1": lambda i: "x"}
    refused({"level_0": lambda i: "x"}, levels, "give all the same levels")
