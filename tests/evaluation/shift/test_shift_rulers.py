"""The marks of the rulers, and why one of them cannot be made."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from ood_lab.common.random_streams import Resampling
from ood_lab.data.dataset import ImageDataset
from ood_lab.evaluation.shift.image_distances import own_distances
from ood_lab.evaluation.shift.shift_rulers import (
    CORRUPTED,
    TRAINED_ON,
    corrupted_test,
    mark_distances,
    shift_in_units,
)
from ood_lab.shift import undecomposed

WIDTH, CPU = 16, torch.device("cpu")


class Grey(ImageDataset):
    def load_image(self, index):
        return Image.new("RGB", (32, 32), (100 + index % 50,) * 3)


def images(name, labels):
    paths = [f"{name}/{i}.png" for i in range(len(labels))]
    return Grey(name, pd.DataFrame({"path": paths, "label": labels}), [], name)


def read(of_train, of_test, k=3, apart=3.0):
    """Classes are ``apart``, the dataset as far; returns values, facts, marks, medians."""
    rng = torch.Generator().manual_seed(0)
    centres = apart * torch.eye(WIDTH)

    def features(labels):
        noise = torch.randn(len(labels), WIDTH, generator=rng)
        return torch.nn.functional.normalize(centres[torch.as_tensor(labels)] + noise, dim=1)

    of_ood = [9] * 50
    labels = {"train": of_train, "test": of_test, "mine": of_ood}
    splits = {name: images(name, of) for name, of in labels.items()}
    data = SimpleNamespace(splits=splits, ood_names=["mine"])
    known = {name: features(of) for name, of in labels.items()}
    made = corrupted_test(splits["test"])
    rows = made.table["severity"].to_numpy()
    known[CORRUPTED] = torch.nn.functional.normalize(
        torch.randn(len(made), WIDTH, generator=rng) + torch.from_numpy(10.0 / rows)[:, None], dim=1
    ).float()
    of_data = {name: known[name] for name in labels}
    unknown = {name: torch.zeros(len(rows)).numpy() for name, rows in of_data.items()}
    degrees = own_distances(data, of_data, unknown, k, CPU)
    degrees["covariate"] = degrees["distance"]
    marks = mark_distances(data, known, undecomposed(WIDTH, {}, k), k, CPU)
    found = shift_in_units(
        data, degrees, marks, ["distance", "covariate"], k, resampling=Resampling(draws=200, seed=0)
    )
    return *found, marks, degrees.groupby("dataset")["distance"].median()


def test_at_most_200_images_under_all_corruptions_in_turn():
    made = corrupted_test(images("test", [0] * 500)).table
    assert made.groupby("severity").size().to_dict() == dict.fromkeys(range(1, 6), 200)
    assert made["made_of"].nunique() == 200
    counts = made[made["severity"] == 3]["corruption"].value_counts()
    assert (len(counts), counts.max() - counts.min()) == (15, 1)
    assert (made.groupby("made_of")["corruption"].nunique() == 1).all()
    few = corrupted_test(images("test", [0, 1]))
    assert len(few) == 10
    assert np.ptp(np.asarray(few.load_image(9))) > 0


def test_another_class_is_about_one_unit_away():
    of_train, of_test = [i % 4 for i in range(200)], [i % 4 for i in range(80)]
    values, (classes, _), marks, _ = read(of_train, of_test)
    assert classes["reason"] is None
    assert classes["note"] == TRAINED_ON
    row = values[values["metric"] == "held_out_class_units"].iloc[0]
    assert 0.7 < row["value"] < 1.3
    assert row["ci_low"] < row["value"] < row["ci_high"]
    assert (marks["metric"] == "held_out_class_units").sum() == 80


@pytest.mark.parametrize(
    ("of_train", "of_test", "words"),
    [
        ([0] * 60, [0] * 30, "are of one class"),
        ([-1] * 60, [-1] * 30, "have no labels"),
        ([0, 1] * 30, [-1] * 30, "have no labels"),
        ([0] * 58 + [1] * 2, [0] * 20 + [1] * 10, "2 training images, fewer than the k=3"),
        ([0, 1] * 30, [0], "a single image"),
    ],
)
def test_without_classes_there_are_ratios_and_a_reason(of_train, of_test, words):
    values, (classes, _), _, medians = read(of_train, of_test)
    assert words in classes["reason"]
    assert classes["note"] is None
    row = values[values["metric"] == "ratio_to_id"].iloc[0]
    assert row["dataset"] == "mine"
    assert row["value"] == pytest.approx(medians["mine"] / medians["test"])
    assert words in row["reason"]


def test_images_of_no_known_class_are_left_out():
    of_train, of_test = [i % 4 for i in range(200)], [i % 4 for i in range(80)]
    values, _, marks, _ = read([*of_train, -1, -1], [*of_test, -1])
    assert (marks["metric"] == "held_out_class_units").sum() == 80
    assert "held_out_class_units" in set(values["metric"])
