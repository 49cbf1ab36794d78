"""Accuracy by level and recall by class, against torchmetrics and by hand."""

import numpy as np
import pytest
import torch
from torchmetrics.functional.classification import multiclass_accuracy

from ood_lab.metrics import HIERARCHY_COLUMNS, hierarchy_table, wilson_interval

RNG = np.random.default_rng(0)
NAMES = [f"period {i}" for i in range(5)]


def test_agrees_with_torchmetrics_overall_and_by_subset():
    labels = RNG.integers(0, 5, 400)
    predictions = np.where(RNG.random(400) < 0.6, labels, RNG.integers(0, 5, 400))
    ding = RNG.random(400) < 0.3
    table = hierarchy_table(labels, predictions, NAMES, {"ding": ding, "gui": ~ding})
    assert list(table) == HIERARCHY_COLUMNS
    assert list(table.subset.unique()) == ["all", "ding", "gui"]
    for subset, mask in (("all", ding | True), ("ding", ding), ("gui", ~ding)):
        rows = table[table.subset == subset]
        pair = torch.tensor(predictions[mask]), torch.tensor(labels[mask])
        micro = multiclass_accuracy(*pair, 5, average="micro")
        per_class = multiclass_accuracy(*pair, 5, average="none")
        np.testing.assert_allclose(rows.value.iloc[0], micro, atol=1e-6)
        np.testing.assert_allclose(rows.value.iloc[1:], per_class, atol=1e-6)
        assert rows.n.iloc[0] == mask.sum() == rows.n.iloc[1:].sum()
        assert rows.correct.iloc[0] == rows.correct.iloc[1:].sum()
    shares = table[table.metric == "accuracy"].set_index("subset")
    np.testing.assert_allclose(shares.value["all"] * 400, shares.correct[["ding", "gui"]].sum())


def test_a_class_is_divided_by_its_labels_not_by_its_predictions():
    # 47 images of the first class, 40 found; 30 others are taken for it: precision is 40 / 70.
    labels = np.repeat([0, 1], [47, 30])
    predictions = np.repeat([0, 1, 0], [40, 7, 30])
    first = hierarchy_table(labels, predictions, ["early Shang", "late Shang"]).loc[1]
    assert (first["name"], first.n, first.correct) == ("early Shang", 47, 40)
    assert first.value == pytest.approx(40 / 47)
    assert (first.ci_low, first.ci_high) == wilson_interval(40 / 47, 47)


def test_what_has_no_images_is_missing_and_unknown_labels_do_not_count():
    table = hierarchy_table([0, 0, -1], [0, -1, 0], ["a", "b"], {"gui": [False, False, True]})
    by = table.set_index(["subset", "metric", "name"])[["n", "value"]]
    assert by.loc[("all", "recall", "a")].tolist() == [2, 0.5]
    assert by.loc[("all", "recall", "b"), "n"] == 0
    assert np.isnan(by.loc[("all", "recall", "b"), "value"])
    gui = table[table.subset == "gui"]
    assert (gui.n == 0).all()
    assert gui[["value", "ci_low", "ci_high"]].isna().all(axis=None)


def test_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="one length"):
        hierarchy_table([0, 1], [0], ["a", "b"])
    with pytest.raises(ValueError, match="label 2 is none of the 2 classes"):
        hierarchy_table([2], [0], ["a", "b"])
