"""The ShiftedBronzes layout, on a small made-up tree."""

import shutil
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
from cli import call
from pictures import picture

from ood_lab.common.errors import UserError
from ood_lab.data.checks.label_checks import count_table
from ood_lab.data.datamodules.shiftedbronzes import BronzesDataModule
from ood_lab.report.detection.class_figures import count_figures

PERIODS = {"late Shang": "Shang", "early Shang": "Shang", "early Western Zhou": "Western Zhou"}
ORDER = ["early Shang", "late Shang", "early Western Zhou", "late Western Zhou"]
OOD = {
    "transferred_bronze": "transferred_bronze",
    "transferred_container": "transferred_container",
    "sketch_rubbing": ["sketch", "rubbing"],
    "container": "container",
    "general": "general",
}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    root = tmp_path_factory.mktemp("bronzes")
    rows, seed = [], 0

    def add(path, **known):
        nonlocal seed
        picture(root / path, seed=seed, size=(8, 8))
        seed += 1
        rows.extend([{"path": path, **known}] if known else [])

    for category, (period, era) in product(("Ding", "Gui"), PERIODS.items()):
        for i in range(20 if category == "Ding" else 10):
            known = {"category": category, "era": era, "period": period}
            known["shape"] = "" if i == 0 else f"round {category}"
            add(f"colour/{category}/{period}/{i}.jpg", **known)
    for kind in ("sketch", "rubbing"):
        known = {"category": "Gui", "era": "Shang", "period": "late Shang", "shape": ""}
        add(f"{kind}/0.jpg", **known)
        add(f"{kind}/unlisted.jpg")
    for folder in ("transferred_bronze", "transferred_container", "container", "general"):
        add(f"{folder}/deep/0.jpg")
        add(f"{folder}/1.jpg")
    pd.DataFrame(rows).to_csv(root / "annotations.csv", index=False)
    shang = [row["path"] for row in rows if row["period"] == "late Shang"]
    boxes = [(path, "taotie", 1, 2, 3, 4) for path in [*shang, shang[0]]]
    boxes += [(shang[1], "kui dragon", 0, 0, 1, 1), ("sketch/0.jpg", "cicada", 0, 0, 1, 1)]
    columns = ["path", "characteristic", "x", "y", "width", "height"]
    pd.DataFrame(boxes, columns=columns).to_csv(root / "boxes.csv", index=False)
    return root


@pytest.fixture
def root(source, tmp_path):
    return Path(shutil.copytree(source, tmp_path / "bronzes"))


def module(root, **options):
    data = BronzesDataModule(root, options.pop("ood", OOD), periods=ORDER, **options)
    data.setup()
    return data


def test_labels_are_those_of_the_tables(source):
    data = module(source)
    # In the order of time, without the period that no image has.
    assert data.classes == ["early Shang", "late Shang", "early Western Zhou"]
    assert data.splits["train"].names_of("level_0") == ("Shang", "Western Zhou")
    assert data.labels.level_sizes == [2, 3]
    assert data.labels.parents == [[0, 0, 1]]
    assert data.labels.categories == 2
    assert data.labels.shapes == 2
    assert data.labels.attributes == 2  # the cicada is on no photograph
    table = pd.concat(data.splits[s].table for s in ("train", "val", "test"))
    assert table["label"].tolist() == table["period"].map(data.classes.index).tolist()
    assert ((table["attribute_taotie"] == 1) == (table["period"] == "late Shang")).all()
    assert table["attribute_kui dragon"].sum() == 1
    first = table["image"].str.endswith("/0.jpg")
    assert (table.loc[first, "shape"] == -1).all()
    assert table.loc[~first, "shape"].equals(table.loc[~first, "category"].map({0: 0, 1: 1}))


@pytest.mark.slow
def test_split_is_4_1_5_in_every_category_and_period_and_seeded(source):
    data = module(source)
    sizes = {
        s: data.splits[s].table.groupby(["category", "period"]).size().unstack("category")
        for s in ("train", "val", "test")
    }
    for split, (ding, gui) in {"train": (8, 4), "val": (2, 1), "test": (10, 5)}.items():
        assert (sizes[split] == [ding, gui]).all(axis=None)
    images = [set(data.splits[s].table["image"]) for s in sizes]
    assert len(set.union(*images)) == sum(map(len, images)) == 90
    assert images[0] == set(module(source).splits["train"].table["image"])
    assert images[0] != set(module(source, split_seed=1).splits["train"].table["image"])


@pytest.mark.slow
def test_ood_sets_are_in_the_order_of_the_paper(source):
    data = module(source)
    assert data.ood_names == data.shift_order == list(OOD)
    drawn = data.splits["sketch_rubbing"].table
    assert sorted(drawn["kind"]) == ["rubbing"] * 2 + ["sketch"] * 2
    assert sorted(drawn["category"]) == [-1, -1, 1, 1]
    assert all((data.splits[name].labels == -1).all() for name in OOD)
    assert len(data.splits["general"]) == 2  # one of them deeper
    fewer = module(source, ood=OOD | {"general": None})
    assert fewer.shift_order == list(OOD)[:-1]
    groups = {"near": list(OOD)[:2], "far": ["container", "general"]}
    grouped = module(source, ood=OOD | {"general": None}, ood_groups=groups)
    assert grouped.shift_order == []
    assert grouped.ood_groups == groups | {"far": ["container"]}


def test_the_split_of_a_run_is_read_back_where_the_data_has_moved(source, root, tmp_path):
    first = module(source, split_seed=5)
    first.save_splits(tmp_path / "splits")
    again = module(root, splits=tmp_path / "splits")
    for split in ("train", "val", "test"):
        ours, theirs = (d.splits[split] for d in (first, again))
        assert ours.table["image"].tolist() == theirs.table["image"].tolist()
        assert theirs.table["path"].str.startswith(str(root)).all()
    assert any("split read from" in note for note in again.notes)
    test = tmp_path / "splits" / "test.csv"
    whole = test.read_text()
    test.write_text(whole + (tmp_path / "splits" / "val.csv").read_text().split("\n", 1)[1])
    with pytest.raises(UserError, match="is in val and in test"):
        module(root, splits=tmp_path / "splits")
    test.write_text(whole.replace("Ding/early Shang", "Ding/erly Shang"))
    with pytest.raises(UserError, match=r"not in annotations\.csv: did you mean"):
        module(root, splits=tmp_path / "splits")


def edit(root, old, new, count=-1):
    file = root / "annotations.csv"
    file.write_text(file.read_text().replace(old, new, count))


WRONG = {
    "column": (("period,", "age,", 1), "has no column 'period'"),
    "cell": (("Ding,Shang", "Ding,", 1), "row 1 has no era"),
    "two eras": (("Ding,Shang,late", "Ding,Xia,late", 1), "period 'late Shang' has two eras"),
    "twice": (("colour/Ding/late Shang/1.jpg", "colour/Ding/late Shang/0.jpg"), "twice"),
    "image": (("colour/Ding/late Shang/1.jpg", "colour/Ding/late Shang/91.jpg"), "are missing"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_tables_are_one_line(root, case):
    change, message = WRONG[case]
    edit(root, *change)
    with pytest.raises(UserError, match=message) as error:
        module(root)
    assert "\n" not in str(error.value)


def test_a_period_that_is_none(root):
    edit(root, ",Western Zhou,early Western Zhou,", ",Western Zhou,erly Western Zhou,")
    with pytest.raises(UserError, match="did you mean 'early Western Zhou'"):
        module(root)


@pytest.mark.slow
def test_data_check_describes_what_is_absent_and_reports_what_is_there(root, tmp_path, capsys):
    def check(place):
        arguments = (f"data.root={place}", f"paths.outputs={tmp_path / 'outputs'}")
        return call("eval.py", "task=data_check", "data=shiftedbronzes", *arguments)

    assert check(tmp_path / "nowhere") == 1
    out, error = capsys.readouterr()
    for words in ("annotations.csv", "path,category,era,period,shape", "boxes.csv", "missing"):
        assert words in out
    assert "annotations is missing" in error
    assert len(error.strip().splitlines()) == 1
    general = ("species", "imagenet_o", "inaturalist", "texture", "openimage_o")
    for seed, name in enumerate(general, start=500):
        picture(root / "general" / name / "0.jpg", seed=seed, size=(8, 8))
    assert check(root) == 0
    out = capsys.readouterr().out
    assert "36 train, 9 val, 45 test" in out
    assert "sketch_rubbing/rubbing" in out


@pytest.mark.slow
def test_every_label_is_counted_by_category_and_dataset(source):
    splits = module(source).splits
    counts = count_table(splits)
    rows = counts.groupby(["label", "name", "category"])["images"].sum()
    annotated = pd.read_csv(source / "annotations.csv", keep_default_na=False)
    boxes = pd.read_csv(source / "boxes.csv").drop_duplicates(["path", "characteristic"])
    both = boxes.merge(annotated, on="path")
    for label, table in {"era": annotated, "period": annotated, "shape": annotated}.items():
        known = table[table[label] != ""].groupby([label, "category"]).size()
        assert rows[label].to_dict() == known.to_dict()
    colour = both[both["path"].str.startswith("colour")]
    known = colour.groupby(["characteristic", "category"]).size()
    assert rows["attribute"].to_dict() == known.to_dict()
    ood = counts[(counts.label == "era") & (counts.dataset == "sketch_rubbing")]
    assert ood[["name", "category", "images"]].to_numpy().tolist() == [["Shang", "Gui", 2]]
    folders = counts[(counts.label == "folder") & (counts.dataset == "container")]
    assert dict(zip(folders.name, folders.images, strict=True)) == {"container": 1, "deep": 1}
    figures = {planned.name: planned.draw() for planned in count_figures(counts)}
    axes = {panel.get_title(): panel for panel in figures["counts_period"].axes}
    bars = [bar.get_width() for bar in axes["ID: images"].patches]
    assert sorted(bars)[-6:] == [10, 10, 10, 20, 20, 20]
    names = [text.get_text() for text in axes["ID: images"].get_yticklabels()]
    classes = splits["train"].classes
    assert [name for name in names if name in classes] == classes  # in the order of time
    (own, *_) = figures["counts_category"].axes
    inside = counts[(counts.label == "category") & counts.dataset.isin(["train", "val", "test"])]
    sizes = inside.groupby("name")["images"].sum()
    assert {text.get_text() for text in own.texts} == {f"{n:,}" for n in (0, *sizes)}
