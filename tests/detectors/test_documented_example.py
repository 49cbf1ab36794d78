"""The detector that docs/how-to/extend.md adds is one."""

import re
from pathlib import Path

import pytest
import torch
import yaml
from detector_toys import close

import ood_lab
from ood_lab.common.errors import UserError
from ood_lab.detectors import (
    KNN,
    CalibratedDetector,
    Detector,
    checked_score,
    load_detector,
    save_detector,
)

PAGE = (Path(__file__).parents[2] / "docs" / "how-to/extend.md").read_text()


def block(language):
    """What the page shows, byte for byte."""
    return re.search(rf"```{language}\n(.*?)```", PAGE, re.S)[1]


def test_it_detects(blobs, tmp_path):
    names = {}
    exec(block("python"), names)
    node = yaml.safe_load(block("yaml"))
    settings = {"_target_": "my_detectors.NearestMean", "p": 2}
    grids = {"grids": {"nearest": {"p": [1, 2, 4]}}}
    assert node == {"detector": {"nearest": settings}, "tuning": grids}
    banks = vars(blobs) | {"ood": {"far": blobs.ood}}
    chosen = {f"p{p}": names["NearestMean"](p=p) for p in (1, 2)}
    outcome = ood_lab.evaluate(**banks, detectors=chosen, n_bootstrap=10)
    aurocs = outcome.results.query("metric == 'auroc' and dataset == 'far'")["value"]
    assert (aurocs > 0.85).all()
    predicted, features = blobs.train.predictions, blobs.train.features.double()
    means = [features[predicted == k].mean(dim=0) for k in predicted.unique()]
    far = outcome.scores.query("dataset == 'far'")["p1"]
    distances = [(blobs.ood.features.double() - mean).abs().sum(dim=1) for mean in means]
    close(torch.tensor(far.to_numpy()), torch.stack(distances).amin(dim=0))
    detector = CalibratedDetector.of(chosen["p1"], [0.0], 0.5, weights_sha256="", transform="")
    save_detector(tmp_path / "it", detector)
    assert repr(load_detector(tmp_path / "it").detector) == "NearestMean(p=1)"


class Forgetful(Detector):
    """Takes an argument that it does not keep."""

    def __init__(self, k: int = 1) -> None:
        self._k = k

    def score(self, bank):
        return bank.features[:, : self._k]


class Untaught(Detector):
    """Stores what it learns elsewhere."""

    fit_split = "train"

    def __init__(self) -> None:
        self.mean = None

    def fit(self, bank):
        self.mean = bank.features.mean()

    def score(self, bank):
        return bank.features[:, 0]


class Wide(Untaught):
    """Gives a score for every feature."""

    fit_split = None

    def score(self, bank):
        return bank.features


@pytest.mark.parametrize(
    ("detector", "message"),
    [
        (Forgetful(), r"detector mine does not keep its argument 'k': write self.k = k in Forget"),
        (
            object(),
            "detector mine is of the type object, no subclass of ood_lab.detectors.Detector",
        ),
        (Untaught(), "mine has learned nothing: its fit stores tensors by name in self.fitted"),
        (Wide(), r"mine gave scores of shape \[200, 32\] for 200 images: its score returns one"),
    ],
)
def test_a_mistake_in_a_detector_of_ones_own_is_one_line(detector, message, blobs):
    banks = {"train": blobs.train, "test": blobs.test, "ood": {"far": blobs.ood}}
    with pytest.raises(UserError, match=message):
        ood_lab.evaluate(**banks, detectors={"mine": detector}, n_bootstrap=10)


def test_a_detector_that_is_not_fitted_is_named(blobs):
    with pytest.raises(UserError, match="knn is not fitted: call fit first"):
        checked_score(KNN(), blobs.test)
