"""Lists of images that are not opened: the same addresses as those that are read, and digests."""

import os
import tarfile

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from ood_lab.common.errors import UserError
from ood_lab.data.sources.image_lists import read_paths
from ood_lab.evaluation.prediction.unlabelled_images import list_images, opened


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    names = [f"sub/{i} ä.png" for i in range(4)]
    (root / "sub").mkdir()
    for name in names:
        Image.fromarray(rng.integers(0, 255, (8, 8, 3), np.uint8)).save(root / name)
    with tarfile.open(root / "a.tar", "w") as tar:
        for name in names:
            tar.add(root / name, name.replace(" ", "_"))
    labelled = "".join(f"{name} {i % 2}\n" for i, name in enumerate(names))
    (root / "labelled.txt").write_text(labelled + "\n")
    (root / "plain.txt").write_text("\ufeff" + "\r\n".join(names), encoding="utf-8")
    table = pd.DataFrame({" Path": [names[0], f"{root}/{names[1]}", *names[2:]], "n": range(4)})
    table.to_csv(root / "table.csv", index=False, sep=";")
    table.to_parquet(root / "table.parquet")
    return root


def test_every_source_has_the_addresses_that_are_read(photos):
    kinds = ["labelled.txt", "plain.txt", "table.csv", "table.parquet", "a.tar", "sub", "sub/*.png"]
    sources = [f"{photos}/{kind}" for kind in kinds]
    listing = list_images(sources).images
    expected = opened(list_images(sources)).table["path"].tolist()
    assert [listing.address(row) for row in range(len(listing))] == expected
    assert len(expected) == 28


def test_a_digest_belongs_to_addresses_in_their_order(photos, tmp_path):
    def digest(lines, rows=range(4)):
        (tmp_path / "list.txt").write_text("\n".join(lines))
        return list_images(f"{tmp_path}/list.txt").images.digest(rows)

    names = [f"{i}.png" for i in range(6)]
    assert digest(names) == digest([*names[:4], "other.png"])
    assert digest(names) != digest([names[1], names[0], *names[2:]])
    assert digest(["ab.png", "c.png"], range(2)) != digest(["a.png", "bc.png"], range(2))
    assert digest(names, range(2, 4)) != digest(names, range(1, 3))
    tar = list_images(f"{photos}/a.tar").images.digest(range(4))
    os.utime(photos / "a.tar", (1, 1))
    assert list_images(f"{photos}/a.tar").images.digest(range(4)) != tar


def test_a_list_that_is_none_is_one_line(tmp_path):
    cases = {
        "a.csv": ("picture,label\nx.png,1\n", "has no column 'path'"),
        "b.csv": ("path,label\nx.png,1\n,2\n", "row 2 has no path"),
        "c.txt": ("x.png 1\nalone\n", "line 2 is not 'path label': 'alone'"),
        "d.txt": ("\n \n", "contains no images"),
        "e.parquet": ("no parquet", "cannot read"),
    }
    for name, (text, message) in cases.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(UserError, match=message) as raised:
            read_paths(tmp_path / name, None)
        assert len(str(raised.value).splitlines()) == 1
