"""Rulers: distances in units of ID data, against a second formula and simulated data."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from ood_lab.common.random_streams import Resampling
from ood_lab.shift import (
    CLASS_UNITS,
    RATIO,
    SEVERITY,
    Decomposition,
    Ruler,
    Sample,
    ShiftMeter,
    polar_factor,
    read_ruler,
)


def sample(values, names=None):
    names = None if names is None else np.asarray(names, object)
    return Sample(np.asarray(values, np.float64), names)


def row_of(reading, name="mine"):
    return reading.values.set_index("dataset").loc[name]


def classes_ruler(test, left_out, **options):
    names = [f"test/{i}" for i in range(len(test))]
    return Ruler(CLASS_UNITS, "semantic", [sample(test, names), sample(left_out, names)], **options)


def severity_ruler(test, corrupted):
    """``corrupted [5, m]``, of the first m images."""
    names = [f"test/{i}" for i in range(len(test))]
    marks = [sample(values, names[: len(values)]) for values in corrupted]
    return Ruler(SEVERITY, "covariate", [sample(test, names), *marks])


def test_class_units_by_resampling_row_by_row():
    rng = np.random.default_rng(1)
    test = rng.gamma(4, 0.01, 81)
    left_out, mine = test + rng.gamma(4, 0.01, 81), rng.gamma(4, 0.02, 60)
    row = row_of(
        read_ruler(
            classes_ruler(test, left_out), {"mine": sample(mine)}, resampling=Resampling(draws=4000)
        )
    )
    unit = np.median(left_out) - np.median(test)
    assert row["metric"] == CLASS_UNITS
    assert row["value"] == pytest.approx((np.median(mine) - np.median(test)) / unit)
    drawn = []
    for _ in range(4000):  # the class left out is measured on the same images as ID test
        rows, others = rng.integers(0, 81, 81), rng.integers(0, 60, 60)
        zero = np.median(test[rows])
        drawn.append((np.median(mine[others]) - zero) / (np.median(left_out[rows]) - zero))
    low, high = np.quantile(drawn, [0.0235, 0.9765])  # widened for 60 images
    assert row["ci_low"] == pytest.approx(low, abs=0.1)
    assert row["ci_high"] == pytest.approx(high, abs=0.15)


@pytest.mark.parametrize(
    ("median", "expected"),
    [(0.5, 0), (1, 0), (1.5, 0.5), (2, 1), (3, 1.5), (4.5, 4.5), (5, 5), (10, 10), (15, 15)],
)
def test_severity_is_read_between_the_marks(median, expected):
    """Medians 1 (ID test), 2, 4, 3, 4, 5: severity 3 counts as 4, the most so far."""
    ladder = [np.full(9, mark) for mark in (2, 4, 3, 4, 5)]
    reading = read_ruler(
        severity_ruler(np.full(9, 1), ladder),
        {"mine": sample([median] * 9)},
        resampling=Resampling(),
    )
    assert reading.marks == [1, 2, 4, 4, 4, 5]
    row = row_of(reading)
    assert row["value"] == pytest.approx(expected)
    assert row["ci_low"] == row["ci_high"] == row["value"]
    if median > 5:
        assert row["multiple"] == pytest.approx(median / 5)
    else:
        assert math.isnan(row["multiple"])


def test_severity_by_interpolation_and_resampling():
    rng = np.random.default_rng(2)
    test = rng.gamma(4, 0.01, 120)
    ladder = [test[:60] * (1 + s) + rng.gamma(2, 0.004, 60) for s in range(1, 6)]
    mine = rng.gamma(4, 0.03, 90)
    reading = read_ruler(
        severity_ruler(test, ladder), {"mine": sample(mine)}, resampling=Resampling(draws=3000)
    )
    row, marks = row_of(reading), [np.median(test), *map(np.median, ladder)]
    assert row["value"] == pytest.approx(np.interp(np.median(mine), marks, range(6)))
    drawn = []
    for _ in range(3000):
        rows = rng.integers(0, 60, 60)  # an image is the same at all severities
        marks = [np.median(rng.choice(test, 120)), *(np.median(of[rows]) for of in ladder)]
        drawn.append(np.interp(np.median(rng.choice(mine, 90)), marks, range(6)))
    low, high = np.quantile(drawn, [0.0235, 0.9765])
    assert (row["ci_low"], row["ci_high"]) == pytest.approx((low, high), abs=0.08)


@pytest.mark.slow
def test_intervals_hold_the_true_value():
    """Of 95% intervals, simulated: both samples and the ruler vary."""
    held = {CLASS_UNITS: [], SEVERITY: []}
    for seed in range(120):
        rng = np.random.default_rng(seed)
        base = rng.exponential(1, 150)
        median = math.log(2)
        mine = {"mine": sample(rng.exponential(2, 100))}
        left_out = base + rng.exponential(1, 150)
        # The median of the sum of two exponentials is 1.678.
        truth = {CLASS_UNITS: median / (1.6783 - median), SEVERITY: 1.25}
        ladder = [base[:80] * (1 + 0.8 * s) for s in range(1, 6)]
        for ruler in (classes_ruler(base, left_out), severity_ruler(base, ladder)):
            row = row_of(read_ruler(ruler, mine, resampling=Resampling(draws=300, seed=seed)))
            assert row["metric"] == ruler.metric
            held[ruler.metric].append(row["ci_low"] <= truth[ruler.metric] <= row["ci_high"])
    for metric, found in held.items():
        assert np.mean(found) >= 0.9, metric


def test_photographs_are_resampled_together():
    """Copies say nothing new, and images of ID test move with it."""
    rng = np.random.default_rng(3)
    test = rng.normal(1, 0.1, 100)
    ruler = classes_ruler(test, test + rng.normal(0.5, 0.1, 100))
    names = [f"test/{i}" for i in range(100)]
    moved = sample(test + 1, names)
    sets = {
        "moved": moved,
        "copied": sample(np.tile(test + 1, 5), names * 5),
        "independent": sample(test + 1),
    }
    values = read_ruler(ruler, sets, resampling=Resampling()).values.set_index("dataset")
    assert values["n"].tolist() == [100, 100, 100]
    width = values["ci_high"] - values["ci_low"]
    assert width["copied"] == pytest.approx(width["moved"], rel=0.25)
    assert values["value"].nunique() == 1


def test_a_unit_that_may_be_nothing_gives_ratios():
    rng = np.random.default_rng(4)
    test, mine = rng.gamma(4, 1, 60), {"mine": sample(rng.gamma(4, 3, 60))}
    flat = rng.permutation(test)
    for ruler, words in (
        (classes_ruler(test, flat), "a held-out class is not significantly more shifted"),
        (severity_ruler(test, [flat] * 5), "corruption of severity 5 does not move"),
        (Ruler(CLASS_UNITS, "semantic", [sample(test)], "one class"), "one class"),
    ):
        reading = read_ruler(ruler, mine, resampling=Resampling())
        row = row_of(reading)
        assert reading.reason.startswith(words)
        assert (row["metric"], row["reason"]) == (RATIO, reading.reason)
        ratio = np.median(mine["mine"].distances) / np.median(test)
        assert row["value"] == pytest.approx(ratio)
        assert row["ci_low"] < ratio < row["ci_high"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("constant", [True, False])
def test_few_or_constant_images_are_no_traceback(n, constant):
    test = np.zeros(n) if constant else np.arange(1.0, n + 1)
    for ruler in (classes_ruler(test, test), severity_ruler(test, [test * s for s in range(1, 6)])):
        row = row_of(read_ruler(ruler, {"mine": sample([2.0] * n)}, resampling=Resampling()))
        assert row["reason"] or row["metric"] == SEVERITY
        if constant:
            assert math.isnan(row["value"])
        else:
            assert math.isfinite(row["value"])
            assert math.isnan(row["ci_low"]) == (n == 1)


def test_the_draws_of_a_dataset_do_not_depend_on_the_others():
    rng = np.random.default_rng(5)
    test = rng.gamma(4, 1, 500)
    ruler = severity_ruler(test, [test[:200] * s for s in range(2, 7)])
    sets = {f"set {i}": sample(rng.gamma(4, 2, 300)) for i in range(20)}
    values = read_ruler(ruler, sets, resampling=Resampling()).values
    (alone,) = read_ruler(ruler, {"set 7": sets["set 7"]}, resampling=Resampling()).values.to_dict(
        "records"
    )
    assert values.iloc[7].to_dict() == pytest.approx(alone, nan_ok=True)


def test_distances_to_the_other_classes():
    """Brute force, over more images than one block holds."""
    torch.manual_seed(0)
    W = polar_factor(torch.randn(6, 6))
    split = Decomposition("laid", W, 3, {"name": "toy"}, k=2)
    bank, images = torch.randn(5000, 6), torch.randn(1100, 6)
    of_bank, of_images = torch.randint(0, 40, (5000,)), torch.randint(0, 40, (1100,))
    meter = ShiftMeter(split, bank)
    found = meter.on_axis("semantic", images, classes=(of_images, of_bank))
    rows, queries = (F.normalize((x @ W)[:, :3], dim=1).double().numpy() for x in (bank, images))
    distances = 1 - queries @ rows.T
    distances[of_images.numpy()[:, None] == of_bank.numpy()] = np.inf
    np.testing.assert_allclose(found, np.sort(distances)[:, 1], atol=1e-6)
    assert bool((found >= meter(images).semantic - 1e-6).all())
