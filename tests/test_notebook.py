"""Arrays, or a network, in; the numbers of a run out."""

import doctest
import subprocess
import sys
from pathlib import Path

import lightning as L
import numpy as np
import pytest
import torch
from torch import nn

import ood_lab
from ood_lab.detectors import KNN, MSP, ODIN, MDSEnsemble
from ood_lab.errors import UserError
from ood_lab.metrics import auroc
from ood_lab.run.resolvers import detector_names

PAGE = Path(__file__).parents[1] / "docs" / "python.md"


def test_the_examples_of_the_page():
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    failed, tried = doctest.testfile(str(PAGE), module_relative=False, optionflags=flags)
    assert not failed
    assert tried >= 10


def test_importing_the_package_loads_no_framework():
    code = "import sys, ood_lab; print('torch' in sys.modules, 'evaluate' in ood_lab.__all__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
    with pytest.raises(AttributeError, match="evaluat"):
        _ = ood_lab.evaluat


@pytest.fixture(scope="module")
def banks():
    rng = np.random.default_rng(0)
    weight = 3 * np.eye(3, 8)
    head = (weight, None)

    def identity(n):
        labels = np.arange(n) % 3
        features = np.abs(2 * weight[labels] / 3 + 0.6 * rng.normal(size=(n, 8)))
        return ood_lab.bank_from_arrays(features, labels, head=head)

    far = ood_lab.bank_from_arrays(rng.random((80, 8)), head=head)
    near = ood_lab.bank_from_arrays(2 * rng.random((60, 8)), head=head)
    return {"train": identity(300), "test": identity(150), "ood": {"far": far, "near": near}}


def test_every_detector_of_the_bank(banks):
    outcome = ood_lab.evaluate(**banks, detectors="all", draws=20)
    assert set(outcome.detectors) | set(outcome.refused) == set(detector_names())
    # Those that work inside the network, and nothing else.
    assert set(outcome.refused) == {n for n in outcome.refused if "network" in outcome.refused[n]}
    assert len(outcome.detectors) >= 25
    scores = outcome.scores.set_index("dataset")
    table = outcome.results.set_index(["detector", "ood", "metric"])
    for name in outcome.detectors:
        assert table.value[name, "far", "auroc"] == auroc(
            scores.loc["test", name], scores.loc["far", name]
        )
    assert {"aurc", "id_accuracy"} <= set(outcome.results.metric)
    text = str(outcome)
    assert max(map(len, text.splitlines())) <= 80
    assert "AUROC" in text


def test_it_is_the_detector_on_its_bank(banks):
    outcome = ood_lab.evaluate(**banks, detectors={"mine": KNN(k=3), "msp": MSP()}, draws=20)
    scores = outcome.scores[outcome.scores.dataset == "test"]
    own = outcome.detectors["mine"].score(banks["test"]).numpy()
    np.testing.assert_array_equal(scores["mine"], own)


def test_val_given_or_drawn(banks):
    drawn = ood_lab.evaluate(**banks, detectors=["react", "knn"], draws=20)
    assert len(drawn.detectors["knn"].fitted["bank"]) == 270
    given = ood_lab.evaluate(**banks, val=banks["test"], detectors=["knn"], draws=20)
    assert len(given.detectors["knn"].fitted["bank"]) == 300


class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.fc = nn.Linear(6, 4)

    def forward(self, image):
        return self.fc(self.body(image).flatten(1))


def test_a_module_becomes_a_bank():
    torch.manual_seed(0)
    net = Module().train()
    images, labels = torch.rand(20, 3, 8, 8), torch.arange(20) % 4
    loader = torch.utils.data.DataLoader(list(zip(images, labels, strict=True)), batch_size=7)
    bank = ood_lab.bank_from_module(net, loader, detectors={"odin": ODIN()})
    assert net.training
    with torch.no_grad():
        torch.testing.assert_close(bank.logits, net(images))
        torch.testing.assert_close(net.fc(bank.features), bank.logits)
    assert bank.labels.tolist() == labels.tolist()
    same = ood_lab.bank_from_module(net, images, labels, head="fc")
    torch.testing.assert_close(same.features, bank.features)
    ood = {"far": ood_lab.bank_from_module(net, images + 1, detectors={"odin": ODIN()})}
    outcome = ood_lab.evaluate(bank, bank, ood, detectors=["odin", "msp", "gram"], draws=10)
    assert set(outcome.detectors) == {"odin", "msp"}
    assert "bank_from_module" in outcome.refused["gram"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ood": {}}, "there is no OOD set"),
        ({"detectors": ["knm"]}, "no detector 'knm'.*knn"),
        (
            {"detectors": {"mds_ensemble": MDSEnsemble(noise=0.01)}},
            "mds_ensemble: with these settings .* network once more after the fit: eval.py does",
        ),
        ({"detectors": ["odin"]}, "no chosen detector works here.*odin: it works on the network"),
    ],
)
def test_wrong_calls_are_one_line(banks, change, message):
    with pytest.raises(UserError, match=message):
        ood_lab.evaluate(**banks | change)


def test_wrong_arrays_are_one_line():
    head = nn.Linear(5, 2)
    with pytest.raises(UserError, match="do not fit the head"):
        ood_lab.bank_from_arrays(np.ones((4, 3)), head=head)
    with pytest.raises(UserError, match="not those of the head"):
        ood_lab.bank_from_arrays(np.ones((4, 5)), head=head, logits=np.full((4, 2), 99.0))
    with pytest.raises(UserError, match="NaN"):
        ood_lab.bank_from_arrays(np.full((4, 5), np.nan), head=head)
    with pytest.raises(UserError, match="no image"):
        ood_lab.bank_from_module(head, [])
