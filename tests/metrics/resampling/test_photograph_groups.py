"""Images that are made of one photograph: their intervals, tests and halves."""

import numpy as np
import pandas as pd
import pytest

from ood_lab.metrics import (
    Evaluation,
    auroc,
    delong,
    mean_aurocs,
    results_of,
    verdict_of,
)
from ood_lab.metrics.resampling.group_intervals import PhotographGroups

SEVERITIES = (1, 2, 3, 4, 5)


def scores(rng, n, share=0.9, corrupted=0.3, others=False, names="ab"):
    """ID of n photographs, and five copies of each, or of ``others``, that share their score."""
    parts = []
    paths = np.array([f"{i}.jpg" for i in range(n)], object)
    photo = {name: rng.normal(size=n) for name in names}
    for severity in (0, *SEVERITIES):
        if others and severity == 1:
            paths = "other" + paths
            photo = {name: rng.normal(size=n) for name in names}
        mark = f"#{severity}" if severity else ""
        dataset = "corrupted" if severity else "test"
        table = pd.DataFrame({"dataset": dataset, "path": paths + mark})
        table["covariate_level"] = severity if severity else np.nan
        table["made_of"] = paths if severity else None
        for name in names:
            own = rng.normal(size=n)
            table[name] = share**0.5 * photo[name] + (1 - share) ** 0.5 * own + corrupted * severity
        parts.append(table)
    return pd.concat(parts, ignore_index=True)


def measured(table, draws=100):
    return Evaluation(table, ["a", "b"], n_bootstrap=draws)


def test_copies_have_one_count_and_groups_keep_their_size():
    photos = np.arange(20)
    groups = [photos, np.repeat(photos, 5), [*photos, 0, 1, 2, 30, 30, 30]]
    copies = PhotographGroups.of(groups)
    assert copies.n == [20, 20, 21]
    assert len(copies.strata.size) == 4  # all of them; 3 to 19, 0 to 2 and 30 of the last group
    for seed in range(5):
        of_id, of_copies, mixed = np.split(
            copies.resample(np.random.default_rng(seed)), [20, 20 + 100]
        )
        assert (np.repeat(of_id, 5) == of_copies).all()
        assert (of_id.sum(), mixed.sum()) == (20, 26)
        assert (mixed[[0, 1, 2]] == mixed[[20, 21, 22]]).all()
        assert (mixed[23:] == 1).all()
    assert of_id.max() > 1


@pytest.mark.slow
@pytest.mark.parametrize("others", [False, True])
def test_the_spread_of_draws_is_that_of_other_photographs(others):
    """Taken for independent, copies of the ID images spread too much, and of others too little."""
    rng = np.random.default_rng(0)
    tables = [scores(rng, 150, others=others) for _ in range(200)]

    def auroc_of(table):
        inside = table["dataset"] == "test"
        return auroc(table.loc[inside, "a"], table.loc[~inside, "a"])

    truth = np.std([auroc_of(table) for table in tables])
    spread = {True: [], False: []}
    for table in tables[:12]:
        for kept in spread:
            evaluation = measured(table if kept else table.drop(columns="made_of"))
            spread[kept].append(evaluation.sets.by_metric["auroc"][1][0, 0].std())
    assert np.mean(spread[True]) == pytest.approx(truth, rel=0.15)
    wrong = np.mean(spread[False]) / truth
    assert wrong < 0.85 if others else wrong > 1.3
    inside = tables[0]["dataset"] == "test"
    of = [tables[0][rows] for rows in (inside, ~inside)]
    names = (of[0]["path"], of[1]["made_of"])
    _, variance = delong(of[0]["a"], of[1]["a"], names)
    assert np.sqrt(variance[0, 0]) == pytest.approx(truth, rel=0.2)


def test_values_stay_and_n_counts_photographs():
    table = scores(np.random.default_rng(1), 120)
    found, before = (
        results_of(measured(of), "net") for of in (table, table.drop(columns="made_of"))
    )
    pd.testing.assert_series_equal(found["value"], before["value"])
    of_set = found[(found["metric"] == "auroc") & found["covariate_level"].isna()]
    assert (of_set["n_ood"] == 120).all()
    same = delong(*(table.loc[table["dataset"] == d, "a"] for d in ("test", "corrupted")))
    every = np.arange(600), np.arange(600, 3600)
    single = delong(np.arange(600.0) % 7, np.arange(3000.0) % 5, every)[1]
    assert single == pytest.approx(delong(np.arange(600.0) % 7, np.arange(3000.0) % 5)[1], rel=1e-2)
    assert same[0][0] == pytest.approx(of_set["value"].iloc[0], abs=1e-12)


@pytest.mark.slow
def test_without_a_difference_the_set_of_the_best_keeps_all_in_spite_of_copies():
    rng, rounds = np.random.default_rng(2), 60
    kept = []
    for _ in range(rounds):
        table = scores(rng, 60, names=("msp", "a", "b"))
        evaluation = Evaluation(table, ["msp", "a", "b"], n_bootstrap=2)
        kept.append(mean_aurocs(evaluation, evaluation.mean_sets).best())
    assert np.mean(kept) > 0.9


def test_copies_in_groups_have_the_numbers_of_single_images():
    """Also of ID test: values, intervals, tests and sizes are those of one image a group."""
    rng = np.random.default_rng(0)
    parts = []
    for name, n in ("test", 120), ("near", 110):
        part = pd.DataFrame({"dataset": name, "path": [f"{name} {i}" for i in range(n)]})
        part["label"] = rng.integers(0, 3, n) if name == "test" else -1
        part["pred"] = np.where(rng.random(n) < 0.8, part["label"], 5)
        for place, detector in enumerate("ab"):
            part[detector] = rng.normal(0.5 * (1 + place) * (name == "near"), 1, n)
        parts.append(part)
    single = pd.concat(parts, ignore_index=True)
    copies = single.loc[single.index.repeat(4)].assign(made_of=lambda rows: rows["path"])
    one, other = (results_of(measured(table), "net") for table in (single, copies))
    assert set(one["unit"]) == {"image"}
    assert set(other["unit"]) == {"group"}
    for column in ("value", "ci_low", "ci_high"):
        pd.testing.assert_series_equal(one[column], other[column], atol=0.02)
    counts = ["metric", "detector", "n_id", "n_ood", "n"]
    pd.testing.assert_frame_equal(one[counts], other[counts])
    tests = [verdict_of(measured(table), "net", {"a": 0, "b": 1}) for table in (single, copies)]
    behind = [of.loc[of["metric"] == "behind", ["value", "ci_low", "ci_high"]] for of in tests]
    pd.testing.assert_frame_equal(*behind, atol=0.02)
