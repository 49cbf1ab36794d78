"""OOD sets of known levels, made of ID test."""

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pictures import folders, truncate
from PIL import Image

from ood_lab.builtin.vessels.datamodule import VesselsDataModule
from ood_lab.common.errors import UserError
from ood_lab.data.datamodules.folder import FolderDataModule
from ood_lab.data.sources.image_files import load_rgb
from ood_lab.data.transforms.corruptions import CORRUPTIONS, _reduced
from ood_lab.data.transforms.subsets import SomeRows
from ood_lab.data.transforms.synthetic_ood import SyntheticOOD, choose, distances

LOOKS = ("fog", "contrast", "gaussian_noise", "pixelate")
TREE = (
    "class,kingdom,family\ncat,animal,mammal\ndog,animal,mammal\nowl,animal,bird\noak,plant,tree\n"
)


def vessels(synthetic_ood, **options):
    data = VesselsDataModule(88, 44, 66, 0, 0, synthetic_ood=synthetic_ood, **options)
    data.setup()
    return data


def photos(root: Path, synthetic_ood, **options):
    folders(root / "id", classes=("cat", "dog", "oak", "owl"), each=20)
    options = {"cache_dir": str(root / "cache"), "split": (0.5, 0.2, 0.3)} | options
    data = FolderDataModule({"train": str(root / "id")}, {}, synthetic_ood=synthetic_ood, **options)
    data.setup()
    return data


def looks(**options):
    return SyntheticOOD(kind="corruptions", corruptions=LOOKS, **options)


def test_every_image_comes_at_every_severity_and_corruptions_are_spread_evenly():
    data = vessels(looks())
    assert data.ood_names == ["corrupted"]
    made, test = data.splits["corrupted"], data.splits["test"]
    assert len(made) == 5 * len(test)
    assert made.labels.unique().tolist() == [-1]
    table = made.table.assign(image=made.table["path"].str.partition("#")[0])
    assert set(table["image"]) == set(test.table["path"])
    for _, level in table.groupby("covariate_level"):
        assert len(level) == len(test)
        counts = level["corruption"].value_counts()
        assert set(counts.index) == set(LOOKS)
        assert counts.max() - counts.min() <= 1
    assert (table.groupby("image")["corruption"].nunique() == 1).all()  # severity alone differs
    names = dict(zip(test.table["path"], np.array(test.classes)[test.labels], strict=True))
    assert (table["category_name"] == table["image"].map(names)).all()
    assert "semantic_level" not in table


@pytest.mark.parametrize("images", [40, 80])
def test_copies_are_spread_evenly_whatever_else_the_seed_draws(images):
    """Halves of the photographs by ``default_rng(seed)`` hold as many copies, of every kind."""
    data = VesselsDataModule(88, 44, 80, 0, 0, synthetic_ood=looks(images=images))
    data.setup()
    table, photographs = data.splits["corrupted"].table, data.splits["test"].table["path"]
    half = set(photographs.iloc[np.random.default_rng(0).permutation(80)[:40]])
    inside = table["made_of"].isin(half)
    share = images / 80
    assert abs(inside.sum() / 5 - 40 * share) <= 8
    levels = table.groupby(["corruption", "covariate_level", inside]).size().unstack(fill_value=0)
    assert len(levels) == 20
    assert (levels >= 2).all(axis=None)
    assert levels.sum(axis=1).eq(images / 4).all()


def test_pixels_follow_from_seed_and_row_alone():
    one, two = (vessels(looks(severities=[1, 4])).splits["corrupted"] for _ in range(2))
    rows = (0, 70, 131)
    backwards = [two.load_image(row).tobytes() for row in rows[::-1]][::-1]
    assert [one.load_image(row).tobytes() for row in rows] == backwards
    assert one.identity == two.identity


def loaded(num_workers):
    data = vessels(looks(severities=[3], images=8), num_workers=num_workers, eval_batch_size=2)
    data.use_transform(eval=as_tensor)
    return np.concatenate([batch["image"].numpy() for batch in data.predict_loader("corrupted")])


def as_tensor(image):
    return np.asarray(image).copy()


def test_workers_make_the_same_images():
    np.testing.assert_array_equal(loaded(0), loaded(2))


CHANGES = {
    "corruptions": {"corruptions": LOOKS[:3]},
    "severities": {"severities": [1, 2, 3, 4]},
    "images": {"images": 60},
    "seed": {"seed": 1},
    "size": {"size": 64},
    "source": {},
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_the_identity_covers_whatever_changes_the_images(change):
    source = {"seed": 1} if change == "source" else {}
    options = {"corruptions": LOOKS} | CHANGES[change]
    other = vessels(SyntheticOOD(kind="corruptions", **options), **source)
    identity = vessels(looks()).splits["corrupted"].identity
    assert other.splits["corrupted"].identity != identity


def test_large_images_are_reduced_first(tmp_path):
    data = photos(tmp_path, looks(severities=[2]))
    assert data.splits["corrupted"].load_image(0).size == (16, 16)
    assert _reduced(Image.new("RGB", (900, 600)), 256).size == (384, 256)
    assert _reduced(Image.new("RGB", (200, 300)), 256).size == (200, 300)


def test_a_set_for_each_severity_is_in_shift_order():
    data = vessels(looks(by_set=True, severities=[5, 1]), shift_order=[])
    assert data.ood_names == data.shift_order == ["corrupted_1", "corrupted_5"]
    weak, strong = (data.splits[name] for name in data.ood_names)
    assert "covariate_level" not in weak.table
    assert weak.table["corruption"].tolist() == strong.table["corruption"].tolist()
    assert weak.identity != strong.identity


def test_declared_orders_stay():
    data = VesselsDataModule(44, 22, 22, 4, 0, synthetic_ood=looks(by_set=True))
    data.setup()
    assert data.shift_order[0] == "transferred_bronze"
    assert data.ood_names[-1] == "corrupted_5"


def test_nothing_is_made_without_being_asked():
    data = vessels(None)
    assert data.ood_names == []
    assert any("synthetic_ood=corruptions" in note for note in data.report.notes)


@pytest.mark.slow
def test_held_out_classes_are_nowhere_in_id(tmp_path):
    synthetic_ood = SyntheticOOD(kind="held_out_classes", held_out=["oak", "dog"])
    data = photos(tmp_path, synthetic_ood, shots=4)
    whole = photos(tmp_path, None)
    assert data.classes == ["cat", "owl"]
    for split in ("train", "val", "test"):
        table = data.splits[split].table
        parents = table["path"].map(lambda path: Path(path).parent.name)
        assert (parents == np.array(data.classes)[table["label"]]).all()
        assert set(parents) == {"cat", "owl"}
    assert len(data.splits["train"]) == 8
    held = data.splits["held_out"]
    assert set(held.labels.tolist()) == {-1}
    parents = [Path(path).parent.name for path in held.table["path"]]
    assert held.table["category_name"].tolist() == parents
    assert sorted(set(parents)) == ["dog", "oak"]
    # What stays is split as before: nothing moves between train, val and test.
    for split in ("val", "test"):
        before = set(whole.splits[split].table["path"])
        ours = set(data.splits[split].table["path"])
        ours |= set(held.table["path"]) if split == "test" else set()
        assert ours == (
            before
            if split == "test"
            else {p for p in before if "/oak/" not in p and "/dog/" not in p}
        )
    assert "semantic_level" not in held.table
    assert any("dog, oak" in note for note in data.report.notes)


@pytest.mark.slow
def test_distance_is_how_far_up_the_hierarchy_relatives_are(tmp_path):
    (tmp_path / "tree.csv").write_text(TREE)
    synthetic_ood = SyntheticOOD(kind="held_out_classes", held_out=["dog", "oak"])
    data = photos(tmp_path, synthetic_ood, hierarchy=str(tmp_path / "tree.csv"))
    table = data.splits["held_out"].table
    distance = dict(zip(table["category_name"], table["semantic_level"], strict=True))
    assert distance == {"dog": 1, "oak": 3}
    train = data.splits["train"]
    names = [train.names_of(f"level_{level}") for level in range(3)]
    assert names == [("animal",), ("bird", "mammal"), ("cat", "owl")]
    assert data.labels.parents == [[0, 0], [1, 0]]
    by_set = SyntheticOOD(kind="held_out_classes", held_out=["dog", "oak"], by_set=True)
    data = photos(tmp_path, by_set, hierarchy=str(tmp_path / "tree.csv"))
    assert data.shift_order == data.ood_names == ["held_out_1", "held_out_3"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_a_share_by_chance_is_near_and_far(seed):
    data = vessels(SyntheticOOD(kind="held_out_classes", seed=seed))
    table = data.splits["held_out"].table
    assert set(table["semantic_level"]) == {1, 2}
    whole = vessels(None)
    dynasty = dict(
        zip(
            np.array(whole.classes)[whole.splits["train"].labels],
            np.array(whole.splits["train"].names_of("level_0"))[
                whole.splits["train"].table["level_0"]
            ],
            strict=True,
        )
    )
    remaining = {dynasty[name] for name in data.classes}
    for name, level in zip(table["category_name"], table["semantic_level"], strict=True):
        assert level == (1 if dynasty[name] in remaining else 2)
    assert set(data.classes) | set(table["category_name"]) == set(whole.classes)
    assert 6 <= len(data.classes) <= 9


def tree_of(*sizes):
    """Labels above the classes: nested sizes of branches, two levels."""
    rows, family = [], 0
    for kingdom, families in enumerate(sizes):
        for size in families:
            rows += [(kingdom, family)] * size
            family += 1
    return rows


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("tree", "reached"),
    [
        (tree_of((4, 4, 4), (4, 4, 4), (1, 1)), {1, 2, 3}),
        (tree_of((10, 10), (10, 10)), {1, 2}),  # no kingdom is as small as the share
        (tree_of((20,), (20,)), {1}),
    ],
)
def test_the_share_holds_and_distances_are_as_many_as_fit(tree, reached, seed):
    held = choose(tree, 0.3, seed)
    assert len(held) == round(0.3 * len(tree))
    kept = set(range(len(tree))) - set(held)
    families, kingdoms = ({tree[c][k] for c in kept} for k in (1, 0))
    expected = {
        c: 1 if tree[c][1] in families else 2 if tree[c][0] in kingdoms else 3 for c in held
    }
    assert distances(tree, held) == expected
    assert set(expected.values()) == reached


def test_csid_sets_and_unlabelled_images_follow(tmp_path):
    names = ("cat", "dog", "owl")
    folders(tmp_path / "id", classes=names, each=20)
    folders(tmp_path / "csid", classes=names, each=3, first_seed=5000)
    root = folders(tmp_path / "test", classes=names, each=4, first_seed=8000)
    test = [(str(root / name / f"{i:03}.jpg"), name) for name in names for i in range(4)]
    test[0] = (test[0][0], "")
    pd.DataFrame(test, columns=["path", "label"]).to_csv(tmp_path / "test.csv", index=False)
    data = FolderDataModule(
        {"train": str(tmp_path / "id"), "test": str(tmp_path / "test.csv")}, {},
        csid={"night": str(tmp_path / "csid")}, full_spectrum=True,
        synthetic_ood=SyntheticOOD(kind="held_out_classes", held_out=["cat"]),
    )  # fmt: skip
    data.setup()
    night = data.splits["night"]
    assert night.classes == data.classes == ["dog", "owl"]
    assert night.labels.bincount().tolist() == [3, 3]
    assert len(data.splits["test"]) == 8
    assert len(data.splits["held_out"]) == 3
    assert any("test: 1 image of no known class left out" in note for note in data.report.notes)


@pytest.mark.slow
def test_without_a_hierarchy_a_share_is_held_out(tmp_path):
    data = photos(tmp_path, SyntheticOOD(kind="held_out_classes", share=0.5))
    assert len(data.classes) == 2
    again = photos(tmp_path, SyntheticOOD(kind="held_out_classes", share=0.5))
    assert data.classes == again.classes
    assert (
        len(
            {
                tuple(
                    photos(
                        tmp_path, SyntheticOOD(kind="held_out_classes", share=0.5, seed=s)
                    ).classes
                )
                for s in range(4)
            }
        )
        > 1
    )


def test_both_is_the_grid_of_all_cells_but_that_of_id(tmp_path):
    (tmp_path / "tree.csv").write_text(TREE)
    synthetic_ood = SyntheticOOD(
        kind="both", held_out=["dog", "oak"], severities=[2, 4], corruptions=LOOKS
    )
    data = photos(tmp_path, synthetic_ood, hierarchy=str(tmp_path / "tree.csv"))
    assert data.ood_names == ["synthetic_ood"]
    grid = data.splits["synthetic_ood"]
    cells = grid.table.groupby(["semantic_level", "covariate_level"]).size()
    assert set(cells.index) == set(product((0, 1, 3), (0, 2, 4))) - {(0, 0)}
    assert cells[0].tolist() == [12, 12]
    assert cells[1].tolist() == cells[3].tolist() == [6, 6, 6]
    assert set(grid.table.loc[grid.table["semantic_level"] == 3, "category_name"]) == {"oak"}
    clean = grid.table.index[grid.table["covariate_level"] == 0][0]
    assert grid.load_image(clean).tobytes() == load_rgb(grid.table["path"][clean]).tobytes()
    assert [s.name for s in data.report.sets] == ["train", "val", "test", "synthetic_ood"]


def test_unreadable_images_and_debug_runs(tmp_path):
    folders(tmp_path / "test", classes=("cat", "dog", "oak", "owl"), each=6, first_seed=7000)
    truncate(tmp_path / "test" / "dog" / "001.jpg")
    sources = {"train": str(folders(tmp_path / "train", classes=("cat", "dog", "oak", "owl"))),
               "test": str(tmp_path / "test")}  # fmt: skip
    sources["val"] = sources["train"]
    data = FolderDataModule(sources, {}, on_broken="skip", synthetic_ood=looks())
    data.setup()
    assert len(data.splits["corrupted"]) == 5 * 23
    few = {"max_batches": 1, "eval_batch_size": 8}
    data = FolderDataModule(sources, {}, on_broken="skip", synthetic_ood=looks(), **few)
    data.setup()
    assert len(data.splits["corrupted"]) == 8


def test_saved_lists_say_what_was_done(tmp_path):
    data = vessels(SyntheticOOD(kind="both", images=5))
    data.save_splits(tmp_path)
    saved = pd.read_csv(tmp_path / "synthetic_ood.csv")
    assert {"corruption", "severity", "category_name"} <= set(saved)
    assert set(saved["corruption"].dropna()) <= set(CORRUPTIONS)
    assert saved.groupby(["semantic_level", "covariate_level"]).size().max() == 5


WRONG = {
    "no class": (
        SyntheticOOD(kind="held_out_classes", held_out=["eagle"]),
        "synthetic_ood.held_out names 'eagle'",
    ),
    "nobody left": (
        SyntheticOOD(kind="held_out_classes", held_out=["cat", "dog", "owl"]),
        "leave 1",
    ),
    "nothing": (SyntheticOOD(kind="held_out_classes", held_out=[]), "hold out 0"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_held_out_is_told(case, tmp_path):
    synthetic_ood, message = WRONG[case]
    with pytest.raises(UserError, match=message):
        photos(tmp_path, synthetic_ood)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"corruptions": ["fogg"]}, "fog"),
        ({"corruptions": []}, "at least one"),
        ({"severities": [0]}, "synthetic_ood.severities"),
        ({"severities": [2, 2]}, "twice"),
    ],
)
def test_wrong_options_are_told(options, message):
    with pytest.raises(UserError, match=message):
        SyntheticOOD(kind="corruptions", **options)


def test_sets_of_that_name_and_unlabelled_id_are_told(tmp_path):
    folders(tmp_path / "x", classes=("cat",), each=12)
    flat = str(tmp_path / "x" / "cat")
    with pytest.raises(UserError, match="rename yours"):
        FolderDataModule({"train": flat}, {"corrupted": flat}, synthetic_ood=looks()).setup()
    with pytest.raises(UserError, match="no labels"):
        FolderDataModule(
            {"train": flat}, {}, synthetic_ood=SyntheticOOD(kind="held_out_classes")
        ).setup()


def test_few_shots_and_masks_pass_through():
    data = vessels(SyntheticOOD(kind="held_out_classes"), shots=2)
    train = data.splits["train"]
    assert isinstance(train, SomeRows)
    assert set(train.labels.bincount().tolist()) == {2}
    assert train.load_mask(0).shape == (64, 64)
