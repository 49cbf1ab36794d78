"""What a run says of its scores before they are believed."""

import numpy as np
import pandas as pd
import pytest

from ood_lab.detectors import KNN
from ood_lab.evaluation.score_warnings import suspicious
from ood_lab.metrics import Evaluation


def evaluation(inside, outside, **options):
    """Of detectors by name, on one OOD set and on a copy of it."""
    parts = [("test", inside), ("far", outside), ("near", outside)]
    tables = [pd.DataFrame({"dataset": name, **scores}) for name, scores in parts]
    return Evaluation(pd.concat(tables, ignore_index=True), list(inside), n_bootstrap=5, **options)


def test_all_that_score_below_04_share_one_line():
    rng = np.random.default_rng(0)
    names = [f"d{i}" for i in range(8)]
    inside = {name: rng.normal(size=100) for name in names}
    low = evaluation(inside, {n: rng.normal(-1.5, 1, 50) for n in names})
    (line,) = suspicious(low, {name: KNN() for name in names})
    assert line.startswith("AUROC below 0.4: d")
    assert line.endswith("and 11 more; it scores these images as more ID than the ID test set")
    assert not suspicious(evaluation(inside, {n: rng.normal(1.5, 1, 50) for n in names}), {})
    # The sign of a built-in detector is right; that of one's own may not be.
    own = type("Own", (KNN,), {"__module__": "my_project.detectors"})
    (line,) = suspicious(low, {name: KNN() for name in names} | {"d3": own()})
    assert line.endswith("ID test set; check the sign of d3: higher must mean more OOD")


def test_constant_scores_are_told():
    (line,) = suspicious(evaluation({"x": np.zeros(9)}, {"x": np.zeros(9)}), {})
    assert line.startswith("every score is the same: x on far, x on near;")


@pytest.mark.parametrize(("positive", "side"), [("ood", "ID"), ("id", "OOD")])
def test_ties_at_the_threshold_of_fpr95_are_told(positive, side):
    """As Gram's on CIFAR: three in four ID scores are exactly 0, and so is the threshold."""
    rng = np.random.default_rng(0)
    many, few = np.r_[np.zeros(75), rng.random(25)], np.r_[np.zeros(10), 1 + rng.random(90)]
    parts = ({"gram": many}, {"gram": few})
    if positive == "id":  # mirrored
        parts = ({"gram": -few}, {"gram": -many})
    (line,) = suspicious(evaluation(*parts, fpr95_positive=positive), {})
    assert line.startswith(f"many {side} scores equal the threshold of FPR95 and are counted tog")
    assert "gram on far (75%), gram on near (75%)" in line
