"""Images of one thing: their groups, which go into one split."""

import pandas as pd
import pytest
from pictures import picture

from ood_lab.common.errors import UserError
from ood_lab.data.datamodules.folder import FolderDataModule
from ood_lab.evaluation.prediction.unlabelled_images import groups_of, list_images


@pytest.fixture(scope="module")
def frames(tmp_path_factory):
    """Two classes of ten scenes with three frames each, and a table of them."""
    folder = tmp_path_factory.mktemp("frames")
    rows = []
    for row, (name, scene, frame) in enumerate(
        (name, scene, frame) for name in ("ant", "bee") for scene in range(10) for frame in range(3)
    ):
        path = folder / name / f"{scene}" / f"{scene}_f{frame}.png"
        picture(path, row)
        rows.append((path, name, f"{name} {scene}", scene))
    table = pd.DataFrame(rows, columns=["path", "label", "scene", "number"])
    table.to_csv(folder / "table.csv", index=False)
    return folder


def module(source, group, **options):
    data = FolderDataModule({"train": str(source)}, {}, group=group, **options)
    data.setup()
    return data


@pytest.mark.parametrize(
    ("source", "group"), [("", r"(.*\d+)_f"), ("", "folder"), ("table.csv", "scene")]
)
def test_a_group_is_in_one_split_and_few_shots_are_groups(frames, source, group):
    data = module(frames / source, group, shots=2)
    whole = {name: set(images.groups.tolist()) for name, images in data.splits.items()}
    assert {name: len(codes) for name, codes in whole.items()} == {"train": 4, "val": 2, "test": 6}
    assert len(set.union(*whole.values())) == 12
    assert {name: len(images) for name, images in data.splits.items()} == {
        "train": 12, "val": 6, "test": 18
    }  # fmt: skip
    for images in data.splits.values():
        scenes = images.table["path"].str.rpartition("_")[0]
        assert images.table.groupby(scenes)["group"].nunique().eq(1).all()
        assert images.facts(0)["group"] == images.groups[0]


def test_single_images_as_groups_are_split_as_without(frames):
    each, plain = (module(frames, group, shots=2) for group in (r"(.*)\.png", "none"))
    for name, images in plain.splits.items():
        assert images.groups is None
        assert images.table["path"].tolist() == each.splits[name].table["path"].tolist()


@pytest.mark.parametrize(
    ("source", "group", "message"),
    [
        ("", r"(\d+)_f", "group '0' has images of 'ant' and 'bee'"),
        ("table.csv", "number", "group '0' has images of 'ant' and 'bee'"),
        ("table.csv", "scenes", "no column 'scenes' .did you mean 'scene'"),
        ("", r"(\d+)_x", "matches no image of train"),
        ("", r"((\d+))_f", "one group in brackets"),
        ("", "((", "not a regular expression"),
    ],
)
def test_groups_that_are_none_are_named(frames, source, group, message):
    with pytest.raises(UserError, match=message):
        module(frames / source, group)


def test_a_group_in_two_sets_is_said_and_its_column_is_part_of_the_identity(frames):
    table = pd.read_csv(frames / "table.csv")
    for name, number in ("test", 3), ("val", 4):
        table.iloc[number::6].to_csv(frames / f"{name}.csv", index=False)
    sources = {"train": "table.csv", "val": "val.csv", "test": "test.csv"}
    data = FolderDataModule({k: str(frames / v) for k, v in sources.items()}, {}, group="scene")
    data.setup()
    said = " ".join(finding.text for finding in data.report.differences)
    assert "10 groups (ant 1, ant 3, ant 5 and 7 more) in more than one of train, val" in said
    other = table.assign(scene=table["scene"].replace("ant 1", "ant 0"))
    other.to_csv(frames / "other.csv", index=False)
    files = "table.csv", "other.csv"
    first, second = (module(frames / file, "scene").splits["train"] for file in files)
    assert first.identity != second.identity


def test_new_images_have_the_groups_of_a_pattern_a_folder_or_a_table(frames):
    for source, by in ("", r"(.*\d+)_f"), ("", "folder"), ("table.csv", "scene"):
        listed = list_images(str(frames / source))
        paths = pd.Series([listed.images.address(row) for row in range(len(listed.images))][:-1])
        codes = pd.factorize(groups_of(listed, paths, by))[0]
        scenes = pd.factorize(paths.str.rpartition("_f")[0])[0]
        assert codes.tolist() == scenes.tolist()
    with pytest.raises(UserError, match=r"task\.group=scenes: task\.images has no column"):
        groups_of(listed, paths, "scenes")
