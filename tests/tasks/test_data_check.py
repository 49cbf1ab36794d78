"""What data_check prints, and when it fails."""

import hashlib

import numpy as np
import pandas as pd
import pytest
from cli import call
from photos import write_photos
from PIL import Image

from ood_lab.run.job.run_identity import config_hash


@pytest.fixture
def images(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "220")
    rng = np.random.default_rng(0)
    for folder in ("id/cat", "id/dog", "far"):
        (tmp_path / folder).mkdir(parents=True)
        for i in range(10):
            pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / folder / f"{i}.png")
    return tmp_path


def check(images, *more, figures=()):
    places = (f"data.id.train={images}/id", f"paths.outputs={images}/outputs")
    return call("eval.py", "task=data_check", "data=folder", *places, *more, figures=figures)


def test_present_and_missing(images, capsys):
    assert check(images, f"data.ood.far={images}/far") == 0
    out = capsys.readouterr().out
    for words in ("licence", "yours", "redistribute", "no", "DIR/<class>/<image>", "present"):
        assert words in out
    assert "split off train" in out  # the check report
    assert not list(images.rglob("*.safetensors"))
    assert check(images, f"data.ood.far={images}/fra", f"data.ood.near={images}/far") == 1
    out, error = capsys.readouterr()
    assert "missing" in out
    assert "present" in out
    assert "1 of 3 sources: far is missing" in error
    assert f"{images}/far" in error
    assert len(error.strip().splitlines()) == 1


def test_every_class_has_its_counts(images, capsys):
    assert check(images, f"data.ood.far={images}/far") == 0
    out = capsys.readouterr().out
    assert "2 classes" in out
    rows = [line.split() for line in out.splitlines()]
    assert ["0", "cat", "6", "1", "3"] in rows
    assert ["1", "dog", "6", "1", "3"] in rows
    assert "1,000" not in out


def test_of_many_classes_the_smallest_and_the_largest_are_printed(images, capsys):
    names = [(f"many/{i}_{j}.png", i) for i in range(1000) for j in range(3 if i == 500 else 2)]
    (images / "many").mkdir()
    for name, _ in names:
        (images / name).hardlink_to(images / "far/0.png")
    (images / "list.txt").write_text("".join(f"{name} {label}\n" for name, label in names))
    places = (f"data.id.train={images}/list.txt", f"data.id.test={images}/list.txt")
    places += (f"data.id.val={images}/list.txt", f"data.root={images}", "data.check=off")
    assert check(images, *places, figures=["counts_class"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("1,000 classes" in line for line in lines)
    assert len(lines) < 60
    assert ["500", "3", "3", "3"] in [line.split()[-4:] for line in lines]
    (file,) = images.rglob("classes.csv")
    counts = pd.read_csv(file.with_name("counts.csv"))
    assert len(counts[counts.label == "class"]) == 3000
    assert (file.parent / "figures/counts_class.png").exists()
    assert pd.read_csv(file)["train"].tolist() == [3 if i == 500 else 2 for i in range(1000)]


def test_a_list_with_another_sha256(images, capsys):
    listing = images / "far.txt"
    listing.write_text("".join(f"far/{i}.png -1\n" for i in range(10)))
    digest = hashlib.sha256(listing.read_bytes()).hexdigest()
    source = (f"data.ood.far={listing}", f"data.root={images}")
    assert check(images, *source, f"data.info.sha256={{far: {digest}}}") == 0
    assert digest in capsys.readouterr().out
    assert check(images, *source, "data.info.sha256={far: 00}") == 1
    assert "far is not the expected list" in capsys.readouterr().err


@pytest.mark.slow
def test_the_builtin_data(tmp_path, capsys):
    sizes = ("data.train=33", "data.val=22", "data.test=22", "data.per_shift_set=5")
    arguments = (*sizes, "data.per_cell=1", f"paths.outputs={tmp_path}")
    assert call("eval.py", "task=data_check", *arguments) == 0
    out = capsys.readouterr().out
    assert "Apache-2.0" in out
    assert "transferred_bronze" in out


def test_what_is_known_of_the_data_is_no_part_of_a_run():
    bare = {"data": {"name": "x"}}
    assert config_hash({"data": {"name": "x", "info": {"licence": "MIT"}}}) == config_hash(bare)


def test_a_wrong_file_is_among_the_unusual_images(tmp_path, capsys):
    places = write_photos(tmp_path, (24, 24), "png")
    (tmp_path / "ood/0.png").rename(tmp_path / "id/plum/wrong.png")
    net = ("model=module", "model.net._target_=tiny_net.TinyNet", "model.head=none")
    of_net = (f"model.backbone.{key}" for key in ("input_size=24", "mean=0.5", "std=0.5"))
    line = ("eval.py", "task=data_check", *places[:2], f"paths.outputs={tmp_path}/out")
    assert call(*line, "task.unusual=true", *net, "model.pretrained=true", *of_net) == 0
    (table,) = tmp_path.rglob("id_images.csv")
    found = pd.read_csv(table).nlargest(1, "knn_score").iloc[0]
    assert len(pd.read_csv(table)) == 61  # nobody gave test and val: nothing is left out
    assert (found["path"], found["knn_p_value"]) == (f"{tmp_path}/id/plum/wrong.png", 1 / 61)
    assert "wrong.png" in (page := table.with_name("unusual_images.html")).read_text()
    assert str(page) in capsys.readouterr().out
