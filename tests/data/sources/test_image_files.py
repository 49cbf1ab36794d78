import hashlib
import os
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pictures import folders, picture, truncate
from PIL import Image

from ood_lab.common.errors import UserError
from ood_lab.data.sources.file_facts import content_hashes, file_facts
from ood_lab.data.sources.image_files import FileDataset, load_rgb
from ood_lab.data.sources.manifest import read_manifest
from ood_lab.data.sources.source_settings import ReadOptions, source_of


def pixels(path):
    image = load_rgb(path)
    assert image.mode == "RGB"
    return np.asarray(image)


def test_modes_become_rgb(tmp_path):
    ramp = np.linspace(0, 65535, 256).round().astype(np.uint16).reshape(16, 16)
    Image.fromarray(ramp).save(tmp_path / "deep.png")
    assert np.array_equal(pixels(tmp_path / "deep.png")[..., 1].ravel(), np.arange(256))

    Image.fromarray((ramp // 257).astype(np.uint8)).save(tmp_path / "grey.png")
    assert np.array_equal(pixels(tmp_path / "grey.png"), pixels(tmp_path / "deep.png"))

    Image.new("CMYK", (4, 4), (0, 255, 255, 0)).save(tmp_path / "cmyk.jpg")
    assert np.abs(pixels(tmp_path / "cmyk.jpg").astype(int) - [255, 0, 0]).max() <= 3

    Image.new("RGBA", (2, 2), (255, 0, 0, 0)).save(tmp_path / "clear.png")
    assert (pixels(tmp_path / "clear.png") == 255).all()
    Image.new("RGBA", (2, 2), (0, 0, 0, 128)).save(tmp_path / "half.png")
    assert np.abs(pixels(tmp_path / "half.png").astype(int) - 127).max() <= 1
    palette = Image.new("P", (2, 2), 0)
    palette.save(tmp_path / "palette.gif", transparency=0)
    assert (pixels(tmp_path / "palette.gif") == 255).all()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(tmp_path, orientation):
    from PIL import ImageOps

    exif = Image.Exif()
    exif[0x0112] = orientation
    file = picture(tmp_path / "a.png", size=(5, 3), exif=exif)
    expected = np.asarray(ImageOps.exif_transpose(Image.open(file)))
    assert np.array_equal(pixels(file), expected)
    assert expected.shape[:2] == ((5, 3) if orientation > 4 else (3, 5))


def test_broken_files_are_named(tmp_path):
    cut = truncate(picture(tmp_path / "cut.jpg", size=(64, 64)))
    (tmp_path / "text.png").write_text("hello")
    Image.new("F", (2, 2)).save(tmp_path / "float.tiff")
    for file in (cut, tmp_path / "text.png", tmp_path / "float.tiff", tmp_path / "none.png"):
        with pytest.raises(UserError, match=f"cannot read image '{file}'"):
            load_rgb(file)


def dataset(folder, **options):
    table, classes = read_manifest(folder)
    return FileDataset("train", table, classes, **options)


@pytest.mark.parametrize("identify", ["content", "stat"])
def test_identity_follows_content_label_and_place(tmp_path, identify):
    folders(tmp_path / "a", each=2)
    shutil.copytree(tmp_path / "a", tmp_path / "far" / "b")  # keeps the times
    base = dataset(tmp_path / "a", identify=identify).identity
    assert dataset(tmp_path / "far" / "b", identify=identify).identity == base
    assert dataset(tmp_path / "a", identify=identify).without([0]).identity != base

    (tmp_path / "far/b/cat/000.jpg").rename(tmp_path / "far/b/dog/000b.jpg")
    moved = dataset(tmp_path / "far" / "b", identify=identify).identity
    picture(tmp_path / "a/cat/000.jpg", seed=99)
    changed = dataset(tmp_path / "a", identify=identify).identity
    assert len({base, moved, changed}) == 3


@pytest.mark.parametrize("identify", ["content", "stat"])
@pytest.mark.parametrize("where", ["files", "shards"])
def test_files_of_the_same_name_size_and_time_are_other_files(tmp_path, identify, where):
    for number, name in enumerate(("a", "b")):
        for row in range(3):
            file = picture(tmp_path / name / "c" / f"{row}.bmp", seed=3 * number + row)
            os.utime(file, (1_700_000_000, 1_700_000_000))

    def seen():
        folder = tmp_path / "a"
        if where == "shards":
            folder = tmp_path / "shards"
            folder.mkdir(exist_ok=True)
            with tarfile.open(folder / "0.tar", "w") as shard:
                shard.add(tmp_path / "a", "a")
            os.utime(folder / "0.tar", (1_700_000_000, 1_700_000_000))
        cache = str(tmp_path / "cache")
        found = source_of(str(folder), "data.id.train").read(None, ReadOptions(print, cache))
        train = FileDataset("train", *found[:2], identify, cache, store=found.store)
        return train.identity, list(train.content_hashes())

    before = seen()
    assert seen() == before
    for step in ("ax", "ba", "xb"):  # the folders change their names
        (tmp_path / step[0]).rename(tmp_path / step[1])
    after = seen()
    assert after[0] != before[0]
    assert not {*after[1]} & {*before[1]}
    for file in (tmp_path / "b" / "c").iterdir():
        shutil.copy2(file, tmp_path / "a" / "c" / file.name)  # cp -p
    again = seen()
    assert again[1] == before[1]
    assert again[0] == before[0]


def test_hashes_are_remembered_while_the_file_is_the_same(tmp_path, monkeypatch):
    files = [str(p) for p in sorted(folders(tmp_path / "a", each=40).rglob("*.jpg"))]
    expected = [hashlib.sha256(Path(f).read_bytes()).hexdigest() for f in files]
    cache = tmp_path / "cache"
    assert content_hashes(files, cache).tolist() == expected
    opened = []
    digest = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda f, k: opened.append(f.name) or digest(f, k))
    assert content_hashes(files[::-1] + files[:3], cache).tolist() == expected[::-1] + expected[:3]
    assert opened == []
    picture(tmp_path / "a/dog/005.jpg", seed=7)
    assert content_hashes(files, cache)[45] != expected[45]
    assert opened == [files[45]]
    assert content_hashes(files, tmp_path / "other").tolist() == content_hashes(files).tolist()


def test_a_damaged_cache_or_a_vanished_file_does_no_harm(tmp_path):
    file = picture(tmp_path / "a.png")
    content_hashes([str(file)], tmp_path)
    (stored,) = (tmp_path / "files").iterdir()
    stored.write_bytes(stored.read_bytes()[:20])
    assert content_hashes([str(file)], tmp_path)[0] == hashlib.sha256(file.read_bytes()).hexdigest()
    gone = str(tmp_path / "gone.png")
    assert content_hashes([gone, str(file)], tmp_path)[0] == ""
    picture(tmp_path / "gone.png")
    assert content_hashes([gone], tmp_path)[0] != ""  # the failure was not remembered


def test_facts_keep_the_order_of_the_paths(tmp_path):
    files = [str(picture(tmp_path / f"{i}.png", size=(i + 1, 2))) for i in range(200)]
    order = np.random.default_rng(0).permutation(200)
    found = file_facts(
        [files[i] for i in order], lambda p: {"bytes2": os.path.getsize(p), "error": ""}, "x"
    )
    assert found["path"].tolist() == [files[i] for i in order]
    assert (found["bytes"] == found["bytes2"]).all()


def test_samples_load_rows(tmp_path):
    data = dataset(folders(tmp_path / "a", each=2))
    data.transform = lambda image: np.asarray(image).mean()
    assert [data[i]["label"] for i in range(6)] == [0, 0, 1, 1, 2, 2]
    assert data[3]["image"] == pixels(data.paths[3]).mean()
    assert isinstance(data.table, pd.DataFrame)
