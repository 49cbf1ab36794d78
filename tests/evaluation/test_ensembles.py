"""Several networks: independent formulas, and tables beside those of the single ones."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from cli import call, run_folders
from photos import write_photos
from scipy.special import softmax
from scipy.stats import entropy
from torch import nn

from ood_lab.common.errors import UserError
from ood_lab.evaluation.ensembles import p_values, predictive
from ood_lab.features.bank_store import load
from ood_lab.models import WrappedBackbone, check_determinism, dropout_sample

SIZES = {"train": 60, "val": 30, "test": 40, "per_shift_set": 10, "per_cell": 0}
LINE = [f"data.{key}={value}" for key, value in SIZES.items()]
QUIET = ["logger=none", "trainer=cpu", "task=score", "task.report=false", "report_by=sets"]


class Net(nn.Module):
    """Drops features with a layer and, before it, with a function of its own."""

    def __init__(self, num_classes: int = 11) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.drop = nn.Conv2d(3, 16, 3, 4), nn.Dropout(0.5)
        self.fc = nn.Linear(16, num_classes)

    def forward(self, x):
        x = F.dropout2d(self.conv(x), 0.25, self.training).mean((2, 3))
        return self.fc(self.drop(x))


def test_scores_of_mean_probabilities():
    p = softmax(3 * np.random.default_rng(0).normal(size=(4, 20, 5)), axis=2)
    found = predictive(torch.from_numpy(p))
    mean = p.mean(axis=0)
    np.testing.assert_allclose(found["predictive_msp"], -mean.max(axis=1))
    np.testing.assert_allclose(found["predictive_entropy"], entropy(mean, axis=1))
    # Mutual information of network and class: the mean divergence from the mean.
    divergence = [entropy(each, mean, axis=1) for each in p]
    np.testing.assert_allclose(found["mutual_information"], np.mean(divergence, axis=0))
    alike = predictive(torch.from_numpy(p[:1]).repeat(3, 1, 1))["mutual_information"]
    np.testing.assert_allclose(alike, 0, atol=1e-12)


def test_p_values_count_the_held_out_images():
    scores, held_out = np.array([0.0, 1.0, 1.5, 9.0]), np.array([2.0, 1.0, 1.0])
    truth = [(1 + (held_out >= s).sum()) / 4 for s in scores]
    np.testing.assert_allclose(p_values(scores, held_out), truth)


def test_a_sample_is_a_network_and_their_mean_is_that_without_dropout():
    backbone = WrappedBackbone(Net(), "fc")
    backbone.data_config = {"input_size": (3, 16, 16)}
    backbone.eval()
    images = torch.randn(5, 3, 16, 16)
    with torch.no_grad():
        plain = backbone(images)
        samples = [dropout_sample(backbone, number, seed=3) for number in range(400)]
        outputs = [sample(images) for sample in samples]
        again = dropout_sample(backbone, 1, seed=3)(images)
        torch.testing.assert_close(outputs[1].logits, again.logits)
        assert not torch.allclose(outputs[0].logits, outputs[1].logits)
        # E[x · m / (1 - p)] = x, and the network is linear.
        mean = torch.stack([output.logits for output in outputs]).mean(dim=0)
        torch.testing.assert_close(mean, plain.logits, atol=0.15, rtol=0)
        dropped = (torch.stack([o.features for o in outputs]) == 0).double().mean()
        assert float(dropped) == pytest.approx(1 - 0.75 * 0.5, abs=0.02)
        torch.testing.assert_close(backbone.head(outputs[0].features), outputs[0].logits)
        torch.testing.assert_close(backbone(images).logits, plain.logits)
    assert check_determinism(samples[0]) is None
    assert repr(samples[0]) != repr(samples[1])
    assert "dropout_sample" not in repr(backbone)
    backbone.net.drop = nn.Identity()
    backbone.net.forward = lambda x: backbone.net.fc(backbone.net.conv(x).mean((2, 3)))
    with pytest.raises(UserError, match="no dropout layer"):
        dropout_sample(backbone, 0, seed=0)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    return tmp_path_factory.mktemp("ensemble")


@pytest.fixture(scope="module")
def runs(outputs):
    line = ("experiment=smoke", *LINE, *QUIET, "detector=[msp,knn]", f"paths.outputs={outputs}")
    for seed in (0, 1):
        assert call("train.py", *line, f"seed={seed}") == 0
    return run_folders(outputs)


@pytest.mark.slow
def test_an_ensemble_beside_its_networks(runs, outputs, capsys):
    line = (*QUIET, "detector=[msp,knn]", f"paths.outputs={outputs}", "metrics.n_bootstrap=20")
    assert call("eval.py", f"ensemble=[{runs[0]},{runs[1]}]", *line) == 0
    out = capsys.readouterr().out
    assert out.count("features of 'container': read from the cache") == 2
    assert "features of 'test': extracted" not in out
    folder = run_folders(outputs)[-1]
    scores = pd.read_parquet(folder / "scores.parquet")
    singles = [pd.read_parquet(run / "scores.parquet") for run in runs]
    for name, single in zip(("", "@2"), singles, strict=True):
        np.testing.assert_array_equal(scores[f"knn{name}"], single["knn"])
        np.testing.assert_array_equal(scores[f"msp{name}"], single["msp"])
    assert not (scores["dataset"] == "val").any()
    # From the banks, by another formula.
    banks = [load(path.parent) for path in (outputs / "features").glob("*/manifest.json")]
    tests = [bank for bank in banks if bank.record.dataset == "test"]
    p = [softmax(bank.logits.double().numpy(), axis=1) for bank in tests]
    mutual = np.mean([entropy(each, np.mean(p, axis=0), axis=1) for each in p], axis=0)
    of_test = scores[scores["dataset"] == "test"]
    np.testing.assert_allclose(of_test["mutual_information"], mutual, atol=1e-9)
    assert scores["ensemble_knn"].between(-1, -1 / 31).all()
    results = pd.read_parquet(folder / "results.parquet")
    names = {"msp", "knn", "msp@2", "knn@2", "ensemble_msp", "ensemble_knn"}
    names |= {"predictive_msp", "predictive_entropy", "mutual_information"}
    assert set(results.detector.dropna()) == names
    accuracy = np.mean(np.mean(p, axis=0).argmax(axis=1) == of_test["label"])
    facts = json.loads((folder / "manifest.json").read_text())
    assert facts["ensemble"] == {"networks": 2, "id_accuracy": pytest.approx(accuracy)}


@pytest.mark.slow
def test_members_are_of_the_same_data_and_classes(runs, outputs, capsys, tmp_path):
    line = ("experiment=smoke", *LINE, *QUIET, "detector=[msp]", f"paths.outputs={tmp_path}")
    assert call("train.py", *line, "data.train=61") == 0
    (other,) = run_folders(tmp_path)
    line = (*QUIET, f"paths.outputs={outputs}", "detector=[msp]")
    wrong = {
        f"ensemble=[{runs[0]},{other}]": "was trained on other images than",
        f"ensemble=[{runs[0]}]": "two different runs",
        f"ensemble=[{runs[0]},{runs[0]}/../gone]": "does not exist",
        "mc_dropout=1": "a number from 2",
    }
    for word, message in wrong.items():
        ckpt = () if word.startswith("ensemble") else (f"ckpt={runs[0]}",)
        assert call("eval.py", word, *ckpt, *line) == 1
        assert message in " ".join(capsys.readouterr().err.split())
    assert call("eval.py", f"ckpt={runs[0]}", "mc_dropout=3", *line) == 1
    assert "has no dropout layer" in capsys.readouterr().err


def test_samples_by_dropout_beside_the_network(outputs, tmp_path):
    torch.save(Net().state_dict(), tmp_path / "net.pt")
    net = ("model=module", "model.net._target_=test_ensembles.Net", "model.head=fc")
    net += (f"model.weights={tmp_path}/net.pt", "model.backbone.input_size=64")
    line = ("experiment=smoke", *LINE, *QUIET, f"paths.outputs={tmp_path}", "detector=[msp,odin]")
    assert call("eval.py", *net, *line, "mc_dropout=3") == 0
    (folder,) = run_folders(tmp_path)
    scores = pd.read_parquet(folder / "scores.parquet")
    assert (scores["mutual_information"] > 0).all()
    assert {"msp", "ensemble_odin"} <= set(scores)
    assert "msp@2" not in scores
    assert len(list((tmp_path / "features").glob("*/manifest.json"))) == 4 * 7


@pytest.mark.slow
def test_an_ensemble_on_photographs_of_ones_own(tmp_path, capsys):
    """Their runs have another preset than the default, so the line is composed again."""
    data = write_photos(tmp_path, (36, 34), "png")
    small = ("logger=none", "metrics.n_bootstrap=20", "data.num_workers=0", "task.report=false")
    own = (*data, *small, "task=score", "trainer.max_epochs=1", "detector=[msp]")
    own += (f"paths.outputs={tmp_path}/o",)
    for seed in (0, 1):
        assert call("train.py", *own, f"seed={seed}") == 0
    runs = ",".join(str(folder) for folder in run_folders(tmp_path / "o"))
    line = (f"ensemble=[{runs}]", *small, "detector=[msp]", f"paths.outputs={tmp_path}/e")
    assert call("eval.py", *line) == 0
    assert "ensemble of 2 networks" in capsys.readouterr().out
