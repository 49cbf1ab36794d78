"""Shift in units of ID data on real photographs, in a network's own features.

Skips where the data, which is not a part of the project, is absent.
"""

import tarfile
from itertools import groupby
from pathlib import Path, PurePosixPath

import numpy as np
import pandas as pd
import pytest
import torch.nn.functional as F
from cli import call, run_folders
from PIL import Image

from ood_lab.features.bank_store import load
from ood_lab.schema.results import of_kind, read_results

SHARED = Path(__file__).parents[3] / "shared" / "data"
ARCHIVE = SHARED / "cifar10_imagenet32.tar.gz"
#: Images of a folder that are taken.
TAKEN = {"id/train": 120, "id/val": 10, "id/test": 30, "ood/imagenet32": 200}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ARCHIVE.exists(), reason="no ../shared/data"),
]


def extract_some(place):
    """The first images of each folder."""
    with tarfile.open(ARCHIVE) as archive:
        files = sorted((m for m in archive if m.isfile()), key=lambda m: m.name)
        for folder, members in groupby(files, lambda m: str(PurePosixPath(m.name).parent)):
            most = next((n for start, n in TAKEN.items() if folder.startswith(start)), 0)
            archive.extractall(place, list(members)[:most], filter="data")


def write_noisy(place, deviation):
    folder = place / f"noise_{deviation}"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number, path in enumerate(sorted((place / "id" / "test").rglob("*.jpg"))):
        pixels = np.asarray(Image.open(path)) / 255
        noisy = np.clip(pixels + rng.normal(0, deviation, pixels.shape), 0, 1)
        Image.fromarray((255 * noisy).round().astype(np.uint8)).save(folder / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("cifar")
    extract_some(place)
    data = [f"data.id.{split}={place}/id/{split}" for split in ("train", "val", "test")]
    data.append(f"data.ood.imagenet32={place}/ood/imagenet32")
    data += [f"data.ood.noise_{i}={write_noisy(place, d)}" for i, d in enumerate((0.04, 0.26))]
    model = [
        *("model=module", "model.net._target_=cifar_resnet.ResNet20", "model.head=linear"),
        *(f"model.weights={SHARED / 'resnet20_cifar10.pt'}", "model.backbone.input_size=32"),
    ]
    task = ["experiment=shift_report", "task.distance=features", "task.k=1", "task.report=false"]
    rest = [
        "detector=[msp]",
        "metrics.n_bootstrap=200",
        "logger=none",
        f"paths.outputs={place}/outputs",
    ]
    assert call("eval.py", "data=folder", *data, *model, *task, *rest) == 0
    (folder,) = run_folders(place / "outputs")
    return folder


@pytest.mark.slow
def test_photographs_of_other_things_are_less_than_a_class_away(run):
    """All 10,000 training images: 0.71 for imagenet32, 0.12 to 2.54 for noise of 0.04 to 0.26."""
    rows = of_kind(read_results(run), "shift").query("metric == 'held_out_class_units'")
    units = rows.set_index("dataset")
    assert 0.4 < units["value"]["imagenet32"] < 1.2
    assert -0.1 < units["value"]["noise_0"] < 0.5
    assert 1.5 < units["value"]["noise_1"] < 4
    assert (units["ci_low"] < units["value"]).all()
    assert (units["value"] < units["ci_high"]).all()


def test_units_by_brute_force(run):
    features = run.parents[2] / "features"
    banks = [load(path.parent, []) for path in features.glob("*/manifest.json")]
    sizes = {"train": 1200, "test": 300, "imagenet32": 200}
    bank_of = {
        name: next(b for b in banks if len(b) == n and bool((b.labels >= 0).all()) == (n > 200))
        for name, n in sizes.items()
    }
    unit = {n: F.normalize(bank_of[n].features, dim=1).double().numpy() for n in sizes}
    near = {name: 1 - unit[name] @ unit["train"].T for name in ("test", "imagenet32")}
    labels = {name: bank_of[name].labels.numpy() for name in ("train", "test")}
    others = np.where(labels["test"][:, None] == labels["train"], np.inf, near["test"])
    zero, one, found = (
        np.median(d.min(axis=1)) for d in (near["test"], others, near["imagenet32"])
    )
    rows = of_kind(read_results(run), "shift").set_index(["metric", "dataset"])["value"]
    assert rows["held_out_class_units", "imagenet32"] == pytest.approx(
        (found - zero) / (one - zero), abs=1e-4
    )


def test_the_ladder_of_corruptions_rises(run):
    marks = pd.read_parquet(run / "ruler.parquet").query("metric == 'corruption_severity'")
    assert marks.groupby("mark").size().tolist() == [200] * 5
    assert set(marks.groupby("index").size()) == {5}
    counts = marks[marks["mark"] == 1]["corruption"].value_counts()
    assert len(counts) == 15
    assert counts.max() - counts.min() <= 1
    medians = marks.groupby("mark")["distance"].median()
    assert medians[5] > 1.2 * medians[1]
