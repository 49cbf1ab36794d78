"""Losses of the classifier: formulas, the outliers of a batch, and a training through train.py."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from cli import call, run_folders
from PIL import Image
from scipy.special import log_softmax

from ood_lab.builtin.vessels.datamodule import VesselsDataModule
from ood_lab.data.datamodules.epoch_sampler import EpochSampler, TrainingView
from ood_lab.models import LogitNorm, OutlierExposure

SIZES = {"train": 150, "val": 60, "test": 60, "per_shift_set": 8, "per_cell": 0}
SMOKE = ("experiment=smoke", "detector=[msp]", "logger=none", "task.report=false", "task=score")
SMALL = [f"data.{key}={value}" for key, value in SIZES.items()]


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(0)
    logits = 5 * torch.randn(6, 4, generator=generator, dtype=torch.float64)
    outliers = 5 * torch.randn(3, 4, generator=generator, dtype=torch.float64)
    return logits, torch.tensor([0, 1, 2, 3, 0, 1]), outliers


def cross_entropy(logits, targets):
    return -(targets * log_softmax(logits, 1)).sum(1).mean()


def test_outlier_exposure_is_the_formula_of_the_paper(batch):
    logits, labels, outliers = batch
    terms = OutlierExposure(weight=0.3)(logits, labels, outliers, 0.0)
    one_hot, uniform = np.eye(4)[labels], np.full((3, 4), 1 / 4)
    assert terms["ce"].item() == pytest.approx(cross_entropy(logits.numpy(), one_hot))
    expected = 0.3 * cross_entropy(outliers.numpy(), uniform)
    assert terms["exposure"].item() == pytest.approx(expected)
    assert list(OutlierExposure()(logits, labels, None, 0.0)) == ["ce"]
    # The authors' lambda, and their batch of 128 images and 256 outliers.
    assert OutlierExposure() == OutlierExposure(weight=0.5, outliers_per_image=2)


def test_logit_norm_is_the_formula_of_the_paper(batch):
    logits, labels, _ = batch
    z = logits.numpy()
    normed = z / (0.04 * np.sqrt((z**2).sum(1))[:, None])
    expected = cross_entropy(normed, np.eye(4)[labels])
    assert LogitNorm()(logits, labels, None, 0.0)["logit_norm"].item() == pytest.approx(expected)
    # The length of the logits changes nothing.
    scaled = LogitNorm()(10 * logits, labels, None, 0.0)["logit_norm"].item()
    assert scaled == pytest.approx(expected, rel=1e-6)


def test_outliers_follow_from_seed_and_epoch():
    data = VesselsDataModule(**SIZES)
    data.setup()
    train, others = data.splits["train"], data.splits["container"]
    view = TrainingView(train, lambda image: torch.tensor(np.asarray(image)))
    view.expose(others, 3)
    pairs = [list(EpochSampler(len(train), 0, lambda epoch=epoch: epoch)) for epoch in (0, 0, 1)]
    drawn = [view.__getitems__(part[:20]) for part in pairs]
    known = [np.asarray(others.load_image(i)) for i in range(len(others))]
    rows = [
        [
            next(i for i, k in enumerate(known) if np.array_equal(o, k))
            for s in part
            for o in s["outliers"]
        ]
        for part in drawn
    ]
    assert rows[0] == rows[1] != rows[2]
    assert len(rows[0]) == 60
    assert set(rows[0]) == set(range(len(others)))


@pytest.fixture(scope="module")
def strangers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("strangers")
    noise = np.random.default_rng(0)
    for i in range(20):
        pixels = noise.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((64, 64)).save(folder / f"{i}.png")
    return folder


@pytest.mark.slow
def test_a_network_learns_to_be_unsure_of_outliers(strangers, tmp_path):
    """Through train.py; the outliers are then predicted by every network."""
    length = ("trainer.max_epochs=10", "data.batch_size=16", *SMALL, f"paths.outputs={tmp_path}")
    losses = {
        "plain": (),
        "exposed": (
            "loss=outlier_exposure",
            "model.classifier.loss.weight=3",
            f"data.outliers={strangers}",
        ),
    }
    confidence = {}
    for name, loss in losses.items():
        assert call("train.py", *SMOKE, *length, *loss, f"name={name}") == 0
        (run,) = run_folders(tmp_path / name)
        scores = pd.read_parquet(run / "scores.parquet")
        sets = json.loads((run / "manifest.json").read_text())["data"]
        assert ("outliers" in sets) == (name == "exposed")
        assert "outliers" not in set(scores.dataset)
        line = (f"ckpt={run}", f"name=predict_{name}", f"paths.outputs={tmp_path}", "logger=none")
        images = ("task=predict", f"task.images={strangers}", "detector=[msp]")
        assert call("eval.py", *images, *line) == 0
        (predicted,) = run_folders(tmp_path / f"predict_{name}")
        confidence[name] = -pd.read_csv(predicted / "predictions.csv").msp_score.mean()
    unsure = 1 / 11  # what a network says that knows nothing of 11 classes
    assert confidence["plain"] - unsure > 1.5 * (confidence["exposed"] - unsure)


@pytest.mark.slow
def test_a_training_with_logit_norm(tmp_path, capsys):
    line = ("loss=logit_norm", "model.classifier.loss.tau=0.1", f"paths.outputs={tmp_path}")
    assert call("train.py", *SMOKE, *SMALL, *line, "logger=csv") == 0
    (run,) = run_folders(tmp_path)
    (logged,) = run.rglob("metrics.csv")
    metrics = pd.read_csv(logged)
    # At most 1 / tau apart, so at the start near log(11), whatever the length of the logits.
    assert 0 < metrics["val/loss"].dropna().iloc[0] < 10


@pytest.mark.slow
def test_wrong_outliers_are_one_line(strangers, tmp_path, capsys):
    data = VesselsDataModule(**SIZES)
    data.setup()
    for i in range(12):
        for part in ("train", "ood"):
            place = tmp_path / part / ("abc"[i % 3] if part == "train" else "") / f"{i}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            data.splits["test" if part == "ood" else "train"].load_image(i).save(place)
    line = ("detector=[msp]", "logger=none", "task=score", "trainer.accelerator=cpu")
    own = (*line, f"data.id.train={tmp_path}/train", f"data.ood.mine={tmp_path}/ood", "data=folder")
    exposed = "loss=outlier_exposure"
    cases = {
        "give them with data.outliers=DIR": (*SMOKE, *SMALL, exposed),
        "choose it, or remove data.outliers": (*SMOKE, *SMALL, f"data.outliers={strangers}"),
        "images that are ID or evaluated": (*own, exposed, f"data.outliers={tmp_path}/ood"),
        "does not exist": (*SMOKE, *SMALL, exposed, f"data.outliers={tmp_path}/none"),
        "model=nts has a loss of its own": (*SMOKE, *SMALL, exposed, "model=nts"),
    }
    for message, arguments in cases.items():
        assert call("train.py", *arguments, f"paths.outputs={tmp_path}/out") == 1
        error = capsys.readouterr().err.strip()
        assert message in error
        assert len([line for line in error.splitlines() if "error" in line]) == 1
