"""The same images as a folder, a class, Hugging Face's, and shards: the same numbers."""

import gzip
import hashlib
import io
import os
import pickle
import shutil
import subprocess
import sys
import tarfile
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from cli import ROOT, call, run_folders
from pictures import Pictures, picture, save_huggingface, truncate, write_shards
from PIL import Image
from pytorch_ood.dataset.img import Textures
from scipy.io import savemat
from source_kinds import HUGGING_FACE, MOSAIC, OWN, SHARDS, kinds, write_kinds
from torch.utils.data import IterableDataset
from torchvision.datasets import CIFAR10, SVHN
from torchvision.transforms.functional import pil_to_tensor

from ood_lab.common.errors import UserError
from ood_lab.data.datamodules.folder import FolderDataModule
from ood_lab.data.sources import huggingface
from ood_lab.data.sources.cub import CUB
from ood_lab.data.sources.tar_shards import read_shards
from ood_lab.evaluation.prediction.unlabelled_images import list_images, opened


@pytest.fixture(scope="module")
def root(tmp_path_factory, huggingface_cache):
    return write_kinds(tmp_path_factory.mktemp("sources"), train=8)


def module(root, kind="folder", **options):
    def of(name):
        wanted = "pattern" if kind == "range" and name == "train" else kind  # which has more
        return kinds(root, name)[wanted]

    data = FolderDataModule(
        {"train": of("train"), "test": of("test")}, {"far": of("far")}, **options
    )
    data.use_transform(eval=pil_to_tensor)
    return data


def images(data, split, workers=0):
    data.loading.__dict__["num_workers"] = workers
    return torch.cat([batch["image"] for batch in data.predict_loader(split)])


@pytest.fixture(scope="module")
def folder(root):
    return module(root, batch_size=5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*OWN, *HUGGING_FACE, *SHARDS, *MOSAIC])
def test_every_kind_has_the_images_and_labels_of_the_folder(root, folder, kind, tmp_path):
    data = module(root, kind, cache_dir=tmp_path, batch_size=5)
    assert data.classes == folder.classes == ["cat", "dog", "owl"]
    for split in folder.splits:
        assert torch.equal(data.splits[split].labels, folder.splits[split].labels)
        assert torch.equal(images(data, split), images(folder, split))
        assert data.splits[split].table["path"].is_unique
    assert set(data.splits["far"].table["category_name"]) == {"cat", "dog", "owl"}
    for mine, theirs in zip(data.report.sets, folder.report.sets, strict=True):
        assert (mine.images, mine.per_class, mine.common_size) == (
            theirs.images,
            theirs.per_class,
            theirs.common_size,
        )
    assert not data.report.overlaps
    again = module(root, kind, cache_dir=tmp_path)
    for split in folder.splits:
        assert again.splits[split].identity == data.splits[split].identity


@pytest.mark.slow
def test_a_remembered_set_is_not_read_again_until_it_changes(root, tmp_path, monkeypatch):
    place = shutil.copytree(root / "test", tmp_path / "test")
    read = []
    get = Pictures.__getitem__
    monkeypatch.setattr(Pictures, "__getitem__", lambda d, row: read.append(row) or get(d, row))

    def built():
        read.clear()
        train = partial(Pictures, root=str(place))
        data = FolderDataModule({"train": train}, {}, cache_dir=tmp_path / "cache")
        data.setup()
        return [images.identity for images in data.splits.values()]

    first = built()
    assert len(read) >= 12
    assert built() == first
    assert len(read) <= 3  # the first one: is it the same whenever it is asked for?
    Image.new("RGB", (16, 16)).save(place / "cat" / "000.png")
    assert built() != first


@pytest.mark.slow
def test_shards_are_indexed_again_where_they_have_changed(root, tmp_path, monkeypatch):
    place = shutil.copytree(root / "shards" / "test", tmp_path / "test")
    opened = []
    index = tarfile.open
    monkeypatch.setattr(
        tarfile, "open", lambda file, mode: opened.append(Path(file).name) or index(file, mode)
    )

    def built():
        opened.clear()
        data = FolderDataModule({"train": str(place)}, {}, cache_dir=tmp_path / "cache")
        data.setup()
        return [images.identity for images in data.splits.values()]

    first = built()
    assert opened == ["part-000.tar", "part-001.tar"]
    assert built() == first
    assert opened == []
    write_shards(root / "train", tmp_path / "other")
    shutil.copy(tmp_path / "other" / "part-000.tar", place / "part-001.tar")
    assert built() != first
    assert opened == ["part-001.tar"]


def test_members_are_found_in_any_order(tmp_path):
    names = ["b/ä.png", "a/2.png", "𝄞.png", "a/10.png", "ｚ.png", "a#1.png"]
    for shard, own in (("y.tar", names), ("x.tar", names[::-1])):
        with tarfile.open(tmp_path / shard, "w") as tar:
            for row, name in enumerate(own):
                member = tarfile.TarInfo(name)
                member.size = row
                tar.addfile(member, io.BytesIO(b"\0" * row))
    table, store = read_shards(str(tmp_path))
    expected = [f"{tmp_path}/x.tar#{name}" for name in names[::-1]]
    expected += [f"{tmp_path}/y.tar#{name}" for name in names]
    assert list(table["path"]) == list(store.members) == expected
    sizes = dict(zip(expected, [*range(6), *range(6)], strict=True))
    for order in (expected, expected[::-1], sorted(expected), expected[::2] * 2):
        assert [store.stat(path)[0] for path in order] == [sizes[path] for path in order]
    assert store.members[expected[7]].shard == f"{tmp_path}/y.tar"
    for absent in (f"{tmp_path}/x.tar#0", f"{tmp_path}/z.tar#a", ""):
        assert absent not in store.members


def test_dots_in_the_names_of_samples_are_named(tmp_path):
    def listed(*names):
        with tarfile.open(tmp_path / "a.tar", "w") as tar:
            for name in names:
                tar.addfile(tarfile.TarInfo(name), io.BytesIO())
        return read_shards(str(tmp_path / "a.tar"))[0]

    assert len(listed("a.png", "a.caption.txt")) == 1  # no label of an image
    for names in (("a.2.png", "a.2.cls"), ("a.b.1.jpg", "a.b.1.txt"), ("a.2.png", "a.2.json")):
        with pytest.raises(UserError, match="write names of samples without dots"):
            listed(*names)


def test_workers_read_every_image_once_and_in_order(root, folder):
    data = module(root, "shards", batch_size=5)
    for split in folder.splits:
        assert torch.equal(images(data, split, workers=2), images(folder, split))


def test_content_shared_by_sets_of_different_kinds_is_found(root):
    same = {k: kinds(root, "test")[k] for k in ("folder", "saved", "shards", "image_folder")}
    data = FolderDataModule({"train": kinds(root, "train")["shards"], "test": same["saved"]}, same)
    data.setup()
    found = {overlap.second: overlap.count for overlap in data.report.overlaps}
    assert found == dict.fromkeys(same, 12)


def test_an_unreadable_image_in_a_shard(root, tmp_path):
    place = shutil.copytree(root / "test", tmp_path / "test")
    truncate(place / "cat" / "000.png")
    good = str(root / "train")
    for path in (write_shards(place, tmp_path / "tar"), save_huggingface(place, tmp_path / "hf")):
        options = {"id": {"train": str(path), "val": good, "test": good}, "ood": {}}
        with pytest.raises(UserError, match="1 of 36 images cannot be read"):
            FolderDataModule(**options).setup()
        data = FolderDataModule(**options, on_broken="skip")
        data.setup()
        assert len(data.splits["train"]) == 11


def broken_parquet(folder):
    import datasets

    path = next(folder.rglob("*.png"))
    rows = {"image": [{"bytes": path.read_bytes(), "path": None}] * 6, "label": [0, 1, 2] * 2}
    rows["image"][4] = None
    kinds = {"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b", "c"])}
    file = folder / "rows.parquet"
    datasets.Dataset.from_dict(rows, datasets.Features(kinds)).to_parquet(str(file))
    return str(file), "#4"


def broken_class(folder):
    class Broken:
        def __len__(self):
            return 6

        def __getitem__(self, row):
            if row == 0:
                raise OSError("disk")
            return Image.new("RGB", (8, 8), (40 * row, 90, 90)), row % 3

    return Broken(), "#0"


def broken_first_row(folder):
    class Broken:
        def __len__(self):
            return 6

        def __getitem__(self, row):
            return (Image.new("RGB", (8, 8), (40 * row, 90, 90)) if row else None), row % 3

    return Broken(), "#0"


def broken_table(folder):
    paths = [str(p) for p in sorted(folder.rglob("*.png"))[:6]]
    paths[4] = None
    table = pd.DataFrame({"path": paths, "label": ["a", "b", "c"] * 2})
    table.to_csv(folder / "rows.csv", index=False)
    return str(folder / "rows.csv"), "row 5 has no path"


@pytest.mark.parametrize("kind", [broken_parquet, broken_class, broken_first_row, broken_table])
def test_a_row_without_an_image_is_broken_like_a_file(root, tmp_path, kind, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    given, said = kind(shutil.copytree(root / "test", tmp_path / "test"))
    sets = {"train": given, "val": given, "test": given}
    with pytest.raises(UserError, match=said):
        FolderDataModule(sets, {}).setup()
    data = FolderDataModule(sets, {}, on_broken="skip")
    data.setup()
    assert len(data.splits["train"]) == 5
    assert "skipped" in " ".join([*data.report.warnings, *data.report.notes])


def cut(place):
    """A shard without its end."""
    (first, *_) = sorted(place.glob("*.tar"))
    first.write_bytes(first.read_bytes()[:2000])
    return place


def test_images_of_any_mode_are_those_of_their_files(tmp_path):
    rng, place = np.random.default_rng(0), tmp_path / "folder"
    pixels = rng.integers(0, 256, (6, 16, 16, 4), np.uint8)
    deep = (pixels[..., 0].astype(np.uint16) << 8) | pixels[..., 1]
    modes = ("1", "L", "LA", "P", "RGBA")
    images = {mode: Image.fromarray(pixels[0]).convert(mode) for mode in modes}
    images["I16"] = Image.fromarray(deep[5])
    for mode, image in images.items():
        (place / mode).mkdir(parents=True)
        image.save(place / mode / "a.png")
    own = partial(Pictures, root=str(place))
    sources = [own, save_huggingface(place, tmp_path / "hf"), write_shards(place, tmp_path / "tar")]
    plain = opened(list_images(str(place))).readable
    for source in sources:
        given = opened(list_images(source if callable(source) else str(source))).readable
        for row in range(6):
            assert given.load_image(row) == plain.load_image(row)


def test_mistakes_are_named(root, tmp_path):
    own = partial(Pictures, root=str(root / "train"))
    shards = kinds(root, "train")["shards"]
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(b""))
    latin = {"encoding": "latin-1", "format": tarfile.GNU_FORMAT}
    with tarfile.open(tmp_path / "latin.tar", "w", **latin) as tar:
        tar.add(next((root / "train").rglob("*.png")), "ä.png")
    (tmp_path / "mosaic").mkdir()
    (tmp_path / "mosaic" / "shard.00000.mds").write_bytes(b"")
    other = save_huggingface(root / "test", tmp_path / "other", "scan", "kind")
    wrong = {
        "id.train: Pictures says: Dataset not found.*; data.id.train.download=true fetches it": (
            partial(Pictures, root="nowhere")
        ),
        "no column 'lable' for the label: did you mean 'label'": {
            "path": str(root / "hf/train"),
            "label": "lable",
        },
        "id/train/Pictures has no column 'img' for the image": {
            "dataset": partial(own, keys=("picture", "label")),
            "image": "img",
        },
        r"no column that is an image \(a, b\): name one": partial(_Nothing, keys=("a", "b")),
        "another image at every read": partial(own, kind="random"),
        "its values are .*, not 0 to 1": partial(own, kind="normalised"),
        "floating-point pixels without a fixed range": partial(own, kind="unbounded"),
        "cannot read shard '.*part-000.tar': .*fetch or write it again": str(
            cut(shutil.copytree(root / "shards/train", tmp_path / "cut"))
        ),
        "latin.tar' has names that are not UTF-8": str(tmp_path / "latin.tar"),
        "has no label 'json.x': there is: png, cls": {"path": shards, "label": "json.x"},
        "no file ends in 'jpeg'": {"path": shards, "image": "jpeg"},
        "is compressed": str(tmp_path / "a.tar.gz"),
        r"part-004\.tar' does not exist": f"{shards}/part-{{000..004}}.tar",
        "is not map-style": iter([]),
        "each would see a part; take a class whose": _Stream(),
        "mosaic' holds shards of MosaicML's streaming": str(tmp_path / "mosaic"),
        "not with 'lable'": {"path": str(root / "train"), "lable": "x"},
        r"several columns for the image \(one, two\)": _Frame({"one": "", "two": ""}),
    }
    for message, source in wrong.items():
        with pytest.raises(UserError, match=message):
            FolderDataModule({"train": source}, {}).setup()
    data = FolderDataModule({"train": {"path": str(other), "label": "kind"}}, {})
    data.setup()
    assert data.classes == ["cat", "dog", "owl"]


def test_a_split_is_there_or_named(root, huggingface_cache):
    for path in (root / "hf/train", root / "parquet/train", root / "train"):
        with pytest.raises(UserError, match="has no split 'tset'"):
            huggingface.load(str(path), split="tset")
    assert len(huggingface.load(str(root / "parquet/train"), split="train")) == 24


def test_the_hub_is_asked_only_when_told():
    with pytest.raises(UserError, match="download: true"):
        huggingface.load("uoft-cs/cifar10")


class _Nothing(Pictures):
    def __init__(self, keys):
        self.keys = keys

    def __len__(self):
        return 3

    def __getitem__(self, row):
        return dict.fromkeys(self.keys, 1)


class _Stream(_Nothing, IterableDataset):
    def __init__(self):
        super().__init__(("image", "label"))

    def __iter__(self):
        return map(self.__getitem__, range(len(self)))


class _Frame(_Nothing):
    def __getitem__(self, row):
        return {key: np.zeros((4, 4), np.uint8) for key in self.keys}


SMALL = ("model=clip", "trainer.accelerator=cpu", "detector=[msp,knn]", "detector.knn.k=2")
QUIET = ("metrics.n_bootstrap=20", "logger=none", "data.batch_size=8", "data.num_workers=0")


def scored(root, outputs, *data):
    """The scores and results of an evaluation."""
    line = ("data=folder", *data, *SMALL, *QUIET, f"paths.outputs={outputs}")
    assert call("eval.py", *line, f"paths.features={outputs}/f", f"paths.cache={outputs}/c") == 0
    folder = run_folders(outputs)[-1]
    return folder, pd.read_parquet(folder / "results.parquet")


@pytest.mark.slow
def test_a_mixed_run_has_the_digits_of_the_folders(root, tmp_path):
    plain = [f"data.id.{s}={root}/{s}" for s in ("train", "test")] + [f"data.ood.far={root}/far"]
    mixed = [
        f"data.id.train={{_target_:pictures.Pictures,root:{root}/train,kind:array}}",
        f"data.id.test={root}/shards/test",
        f"data.ood.far={{_target_:ood_lab.data.sources.huggingface.load,path:{root}/hf/far}}",
    ]
    _, expected = scored(root, tmp_path / "plain", *plain)
    folder, found = scored(root, tmp_path / "mixed", *mixed)
    pd.testing.assert_frame_equal(found, expected)
    assert "far/load#" in (folder / "splits" / "far.csv").read_text()
    assert (folder / "report.html").read_text().count("data:image/jpeg") > 3  # pictures of them
    # Repeated, it is shown again; a shard that has changed is noticed.
    assert (
        call(
            "eval.py",
            "data=folder",
            *mixed,
            *SMALL,
            *QUIET,
            f"paths.outputs={tmp_path}/mixed",
            f"paths.features={tmp_path}/mixed/f",
            f"paths.cache={tmp_path}/mixed/c",
        )
        == 0
    )
    assert len(run_folders(tmp_path / "mixed")) == 1


@pytest.mark.slow
def test_predictions_over_each_kind_are_those_of_the_folder(root, tmp_path):
    id_sets = [f"data.id.{s}={root}/shards/{n}" for s, n in (("train", "train"), ("val", "test"))]
    line = ("task=predict", "data=folder", *id_sets, *SMALL, "logger=none", "task.alpha=0.2")
    far = f"{root}/shards/far"
    given = {
        "folder": f"{root}/far",
        "range": f"{{path:'{far}/part-{{000..001}}.tar',image:png}}",
        "class": f"{{_target_:pictures.Pictures,root:{root}/far}}",
        "mixed": f"[{far}/part-000.tar,{far}/part-001.tar]",
    }
    found = {}
    for kind, images in given.items():
        places = (f"paths.outputs={tmp_path}/{kind}", f"paths.features={tmp_path}/f")
        assert call("eval.py", *line, f"task.images={images}", *places) == 0
        (folder,) = run_folders(tmp_path / kind)
        found[kind] = pd.read_csv(folder / "predictions.csv")
        assert "data:image/" in (folder / "predictions.html").read_text()
    names = [f"{far}/part-{row // 7:03}.tar#{row:05}.png" for row in range(12)]
    rows = [f"task/images/Pictures#{row:02}" for row in range(12)]
    for kind, expected in (("range", names), ("mixed", names), ("class", rows)):
        assert found[kind]["path"].tolist() == expected
    for table in found.values():
        expected = found["folder"].drop(columns="path")
        pd.testing.assert_frame_equal(table.drop(columns="path"), expected, rtol=1e-5)


@pytest.mark.slow
def test_two_processes_have_the_digits_of_one(root, tmp_path):
    """Every kind is an OOD set of the same images, so that each has the folder's numbers, too."""
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node=2"]
    far = {
        "folder": f"{root}/far",
        "shards": f"{root}/shards/far",
        "own": f"{{_target_:pictures.Pictures,root:{root}/far}}",
        "saved": f"{root}/hf/far",
        "parquet": f"{{_target_:ood_lab.data.sources.huggingface.load,path:{root}/parquet/far}}",
    }
    id_sets = [f"data.id.{name}={root}/shards/{name}" for name in ("train", "test")]
    sets = [*id_sets, *(f"data.ood.{name}={source}" for name, source in far.items())]
    line = ["data=folder", *sets, *SMALL, *QUIET, "task.report=false"]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{Path(__file__).parents[1]}"}
    found = []
    for run, (processes, starter) in enumerate([(1, []), (2, []), (2, torchrun)]):
        outputs = tmp_path / str(run)
        places = [f"paths.{p}={outputs}/{p}" for p in ("outputs", "features", "cache")]
        ranks = ["trainer=ddp_cpu", f"trainer.devices={processes}"]
        command = [sys.executable, *starter, str(ROOT / "eval.py"), *line, *places, *ranks]
        subprocess.run(command, env=environment, cwd=tmp_path, check=True, timeout=500)
        (folder,) = run_folders(outputs)
        found.append(pd.read_parquet(folder / "scores.parquet"))
    for table in found:
        pd.testing.assert_frame_equal(table, found[0], rtol=1e-5, atol=1e-6)
        scores = {name: rows[["msp", "knn"]].to_numpy() for name, rows in table.groupby("dataset")}
        assert set(scores) == {"test", *far}
        for name in far:
            np.testing.assert_allclose(scores[name], scores["folder"], rtol=1e-5, atol=1e-6)


def test_images_to_predict_come_from_any_source(root):
    plain = opened(list_images(f"{root}/far"))
    for kind in ("shards", "saved", "pil"):
        given = opened(list_images(kinds(root, "far")[kind]))
        assert len(given.readable) == len(plain.readable) == 12
        for row in range(12):
            assert given.readable.load_image(row) == plain.readable.load_image(row)
    mixed = opened(list_images([kinds(root, "far")["pil"], f"{root}/shards/far", f"{root}/far"]))
    assert len(set(mixed.table["path"])) == 36
    assert mixed.readable.load_image(13) == mixed.readable.load_image(25)


def test_measured_levels_find_the_rows_of_a_data_set(root, tmp_path):
    plain = module(root, "pil")
    table = plain.splits["far"].table[["path"]].rename_axis("index").reset_index()
    rows = np.arange(len(table))
    levels = table.assign(dataset="far", semantic_level=rows % 3, covariate_level=rows % 2)
    levels.to_parquet(tmp_path / "levels.parquet")
    data = module(root, "pil", levels=tmp_path / "levels.parquet")
    assert data.splits["far"].table["semantic_level"].tolist() == (rows % 3).tolist()


@pytest.fixture
def cifar(tmp_path, monkeypatch):
    """Torchvision's own CIFAR-10 on ten images a class for training and five for testing."""
    place = tmp_path / "data" / "cifar10" / CIFAR10.base_folder
    place.mkdir(parents=True)
    rng, names = np.random.default_rng(0), ["plane", "bird", "cat"]

    def write(name, content):
        (place / name).write_bytes(pickle.dumps(content))
        return hashlib.md5((place / name).read_bytes()).hexdigest()

    lists = {}
    for name, each in (("data_batch_1", 10), ("test_batch", 5)):
        labels = list(range(3)) * each
        pixels = rng.integers(0, 256, (len(labels), 3072), np.uint8)
        lists[name] = [[name, write(name, {"data": pixels, "labels": labels})]]
    meta = {"filename": "batches.meta", "key": "label_names"}
    meta["md5"] = write("batches.meta", {"label_names": names})
    for name, value in zip(
        ("train_list", "test_list", "meta"), (*lists.values(), meta), strict=True
    ):
        monkeypatch.setattr(CIFAR10, name, value)
    return tmp_path / "data"


def fake_svhn(root, images, monkeypatch):
    """Torchvision's own SVHN on a few images."""
    root.mkdir()
    file, rng = root / "test_32x32.mat", np.random.default_rng(1)
    pixels = rng.integers(0, 256, (32, 32, 3, images), np.uint8)
    savemat(file, {"X": pixels, "y": np.arange(1, images + 1)[:, None]})
    known = ["", file.name, hashlib.md5(file.read_bytes()).hexdigest()]
    monkeypatch.setattr(SVHN, "split_list", {"test": known})


def fake_textures(root, images, monkeypatch):
    """pytorch-ood's own Textures on a few images."""
    for row in range(images):
        picture(root / Textures.base_folder / "banded" / f"{row}.jpg", seed=row)
    (root / Textures.filename).write_bytes(b"")
    monkeypatch.setattr(Textures, "tgz_md5", hashlib.md5(b"").hexdigest())


def test_published_sets_are_ready_and_nothing_is_fetched(cifar, tmp_path, capsys, monkeypatch):
    line = ("task=data_check", "data=cifar10", f"root={cifar}", f"paths.outputs={tmp_path}/o")
    line = (*line, f"paths.cache={tmp_path}/c")
    assert call("eval.py", *line, "data/ood=[svhn,textures]") == 1
    error = " ".join(capsys.readouterr().err.split())
    assert "2 of 4 sources: svhn is incomplete: SVHN says: Dataset not found" in error
    assert "data.ood.svhn.download=true fetches it" in error
    assert {path.name for path in cifar.iterdir()} == {"cifar10"}
    fake_svhn(cifar / "svhn", 7, monkeypatch)
    fake_textures(cifar / "textures", 6, monkeypatch)
    assert call("eval.py", *line, "data/ood=[svhn,textures]") == 0
    shown = map(str.split, capsys.readouterr().out.splitlines())
    counts = {words[0]: words[1] for words in shown if len(words) > 1}
    assert (counts["svhn"], counts["textures"]) == ("7", "6")
    (classes,) = (tmp_path / "o").rglob("classes.csv")
    assert pd.read_csv(classes).to_dict("list") == {
        "label": [0, 1, 2],
        "class": ["plane", "bird", "cat"],
        "train": [9, 9, 9],
        "val": [1, 1, 1],
        "test": [5, 5, 5],
    }


def test_cub_follows_its_own_lists(tmp_path):
    place = tmp_path / "CUB_200_2011"
    files = [f"00{c}.Bird_{c}/{i}.jpg" for c in (1, 2) for i in range(3)]
    for row, file in enumerate(files):
        picture(place / "images" / file, seed=row)
    lists = {
        "images": files,
        "image_class_labels": [1, 1, 1, 2, 2, 2],
        "train_test_split": [1, 1, 0, 1, 0, 0],
        "classes": ["001.Bird_1", "002.Bird_2"],
    }
    with pytest.raises(UserError, match=r"train_test_split.txt' does not exist"):
        CUB(tmp_path)
    for name, values in lists.items():
        lines = [f"{number} {value}\n" for number, value in enumerate(values, 1)]
        (place / f"{name}.txt").write_text("".join(lines))
    train, test = CUB(tmp_path), CUB(tmp_path, train=False)
    assert [label for _, label in train.samples] == [0, 0, 1]
    assert [label for _, label in test.samples] == [0, 1, 1]
    assert train.classes == lists["classes"]
    assert train[0][0].size == (16, 16)


def test_a_data_set_that_is_not_there_is_one_line(tmp_path, capsys):
    data = f"data.id.train={{_target_:torchvision.datasets.CIFAR10,root:{tmp_path}/none}}"
    assert call("eval.py", "data=folder", data, *SMALL, *QUIET, f"paths.outputs={tmp_path}") == 1
    error = " ".join(capsys.readouterr().err.split())
    assert "data.id.train: CIFAR10 says: Dataset not found or corrupted" in error
    assert "data.id.train.download=true fetches it" in error
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("column", ["path", "Path ", "filename", "photo"])
def test_encoded_images_of_any_parquet_file(root, folder, column, tmp_path):
    files = sorted((root / "far").rglob("*.*"))
    rows = [{column: {"bytes": file.read_bytes(), "path": None}} for file in files]
    place = tmp_path / "[x].parquet"  # no pattern
    pd.DataFrame(rows).to_parquet(place)
    data = FolderDataModule({"train": str(root / "train")}, {"far": str(place)})
    data.setup()
    assert len(data.splits["far"]) == len(folder.splits["far"])


def test_paths_beside_encoded_images_are_read(root, folder, tmp_path):
    files = sorted((root / "far").rglob("*.*"))
    thumb = {"bytes": b"", "path": None}
    rows = [{"Path": str(file), "thumb": thumb} for file in files]
    pd.DataFrame(rows).to_parquet(tmp_path / "list.parquet")
    data = FolderDataModule({"train": str(root / "train")}, {"far": str(tmp_path / "list.parquet")})
    data.setup()
    assert data.splits["far"].paths == list(map(str, files))
