"""The rule that names a detector: chosen on one half, reported on the other."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from ood_lab.metrics import Evaluation, advise, auroc


def scores(rng, lifts, n=200, sets=("near", "far")):
    """Detectors whose OOD scores lie that much higher than ID's, with shared noise."""
    parts = []
    for dataset in ("test", *sets):
        shared = rng.normal(size=n)
        table = {"dataset": dataset, "index": range(n), "label": 0, "pred": 0}
        for name, lift in lifts.items():
            own = rng.normal(size=n)
            table[name] = 0.6 * shared + 0.8 * own + (lift if dataset != "test" else 0)
        parts.append(pd.DataFrame(table))
    return pd.concat(parts, ignore_index=True)


def advice(rng, lifts, seed, draws=200, **more):
    table = scores(rng, lifts, **more)
    return advise(Evaluation(table, list(lifts), draws=draws, level_sets=()), seed)


def named(lifts, n, rounds):
    """Of so many draws, those in which the rule names another detector than the baseline."""
    rng = np.random.default_rng(0)
    found = (advice(rng, lifts, seed, n=n, draws=100) for seed in range(rounds))
    return sum(of.detector != "msp" for of in found)


@pytest.mark.parametrize("rounds", [150, pytest.param(1000, marks=pytest.mark.slow)])
def test_without_a_difference_a_winner_is_named_in_less_than_5_percent_of_draws(rounds):
    found = named(dict.fromkeys(("msp", *"abc"), 1.0), 60, rounds)
    # So few would be improbable (one-sided, 5%) if the share were 5% or more.
    assert binom.cdf(found, rounds, 0.05) < 0.05


def test_a_real_difference_is_mostly_found():
    lifts = {"msp": 1.0, "good": 1.5, "b": 1.0, "c": 1.0}  # AUROC 76.0 and 85.6
    assert named(lifts, 200, 50) > 40


def test_a_real_difference_is_found_and_reported_on_the_other_half():
    rng = np.random.default_rng(1)
    found = advice(rng, {"msp": 0.5, "good": 2.0, "middling": 1.0}, 0)
    assert (found.detector, found.runner_up) == ("good", "middling")
    assert 0 < found.lead.low < found.lead.value < found.lead.high
    assert found.gain.value > found.lead.value
    assert (found.n_id, found.n_ood) == (100, 200)


@pytest.mark.parametrize(("n", "most"), [(100, 1.0), (400, 0.1)])
def test_perfect_separation_is_not_certain(n, most):
    found = advice(np.random.default_rng(3), {"msp": 0.0, "good": 20.0}, 0, n=n)
    assert (found.cost.value, found.cost.low) == (0, 0)
    assert 0.01 < found.cost.high <= most


def test_the_gain_is_that_of_the_second_half_alone():
    rng = np.random.default_rng(2)
    table = scores(rng, {"msp": 0.0, "good": 2.0}, sets=("one",))
    found = advise(Evaluation(table, ["msp", "good"], draws=50, level_sets=()), 5)
    split = np.random.default_rng(5)
    second = []
    for dataset in ("test", "one"):
        rows = table[table["dataset"] == dataset]
        second.append(rows.iloc[np.sort(split.permutation(200)[100:])])
    by_hand = [auroc(second[0][d], second[1][d]) for d in ("good", "msp")]
    assert found.gain.value == pytest.approx(by_hand[0] - by_hand[1], abs=1e-12)


@pytest.mark.parametrize(
    ("lifts", "n"), [({"a": 1.0, "b": 2.0}, 100), ({"msp": 1.0}, 100), ({"msp": 1.0, "a": 2.0}, 30)]
)
def test_no_advice_without_a_baseline_a_choice_or_enough_images(lifts, n):
    assert advice(np.random.default_rng(0), lifts, 0, n=n) is None
