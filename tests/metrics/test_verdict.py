"""The set of the best, against a bootstrap, and the verdict that rests on it."""

import numpy as np
import pandas as pd
import pytest

from ood_lab.metrics import Evaluation, auroc, best_detectors, mean_aurocs, verdict_of

SETS = ("near", "far")


def scores(rng, lifts, n=200, sets=SETS, n_id=None, shared=0.6):
    """Detectors whose OOD scores are that much higher than ID's, with shared noise."""
    parts = []
    for dataset in ("test", *sets):
        rows = (n_id or n) if dataset == "test" else n
        common = rng.normal(size=rows)
        table = {"dataset": dataset, "index": range(rows), "label": 0, "pred": 0}
        for name, lift in lifts.items():
            own = rng.normal(size=rows)
            lifted = lift if dataset != "test" else 0
            table[name] = shared * common + np.sqrt(1 - shared**2) * own + lifted
        parts.append(pd.DataFrame(table))
    return pd.concat(parts, ignore_index=True)


def evaluation(table, names, draws=100, flagged=()):
    return Evaluation(table, list(names), n_bootstrap=draws, flagged=flagged)


def verdict(table, names, costs=None, flagged=(), draws=100):
    costs = costs or dict.fromkeys(names, 1)
    return verdict_of(evaluation(table, names, draws, flagged), "net", costs)


def value(rows, metric, detector=None, ood=None):
    chosen = rows[rows["metric"] == metric]
    chosen = chosen[
        chosen["detector"].isna() if detector is None else chosen["detector"] == detector
    ]
    if ood:
        chosen = chosen[chosen["dataset"] == ood]
    return chosen.iloc[0] if len(chosen) else None


def names_of(rows, metric):
    return set(rows.loc[(rows["metric"] == metric) & (rows["value"] == 1), "detector"].dropna())


def resampled_means(table, names, sets, draws, rng):
    """Mean AUROC of resampled images, ``[draws, D]``: the slow second formula."""
    blocks = {name: rows[list(names)].to_numpy() for name, rows in table.groupby("dataset")}
    found = np.empty((draws, len(names)))
    for draw in range(draws):
        taken = {k: rows[rng.integers(len(rows), size=len(rows))] for k, rows in blocks.items()}
        for d in range(len(names)):
            found[draw, d] = np.mean([auroc(taken["test"][:, d], taken[s][:, d]) for s in sets])
    return found


def test_covariance_of_means_is_that_of_a_bootstrap():
    lifts = {"a": 0.5, "b": 0.8, "c": 1.5}
    table = scores(np.random.default_rng(1), lifts, n=150, n_id=250)
    joint = mean_aurocs(evaluation(table, lifts), SETS)
    drawn = resampled_means(table, lifts, SETS, 1500, np.random.default_rng(2))
    np.testing.assert_allclose(joint.covariance, np.cov(drawn.T), rtol=0.15, atol=2e-5)
    np.testing.assert_allclose(joint.values, drawn.mean(axis=0), atol=0.003)


@pytest.mark.slow
def test_set_of_the_best_is_that_of_a_bootstrap():
    """Detector i is in it where no other is ahead by more than the drawn maximum allows."""
    lifts = {"a": 1.0, "b": 1.05, "c": 1.25, "d": 1.3}
    for seed in range(8):
        table = scores(np.random.default_rng(seed), lifts, n=120)
        joint = mean_aurocs(evaluation(table, lifts), SETS)
        drawn = resampled_means(table, lifts, SETS, 800, np.random.default_rng(seed))
        expected, unsure = [], []
        for i in range(len(lifts)):
            difference = drawn - drawn[:, [i]]
            centred = difference - (joint.values - joint.values[i])
            others = np.arange(len(lifts)) != i
            spread = difference.std(axis=0, ddof=1)[others]
            reach = np.quantile((centred[:, others] / spread).max(axis=1), 0.95)
            margin = (reach - (joint.values - joint.values[i])[others] / spread).min()
            expected.append(margin >= 0)
            unsure.append(abs(margin) < 0.25)  # where 800 draws do not decide
        wrong = (joint.best() != expected) & ~np.array(unsure)
        assert not wrong.any(), (seed, joint.values, joint.best(), expected)


@pytest.mark.slow
@pytest.mark.parametrize("n", [30, pytest.param(200, marks=pytest.mark.slow)])
def test_without_shift_no_detector_is_called_better_than_chance_more_often_than_5_percent(n):
    rng, lifts, rounds = np.random.default_rng(0), dict.fromkeys("abcdef", 0.0), 120
    found = [mean_aurocs(evaluation(scores(rng, lifts, n), lifts, 2), SETS) for _ in range(rounds)]
    detects = sum(bool((joint.ends()[0] > 0.5).any()) for joint in found)
    assert detects <= 0.05 * rounds + 2.6 * np.sqrt(0.05 * 0.95 * rounds)
    # All are equally good: each belongs to the set of the best in 95% of the samples.
    kept = np.mean([joint.best() for joint in found])
    assert kept > 0.93


@pytest.mark.slow
def test_the_true_best_is_in_the_set_and_the_intervals_hold_together():
    lifts = {"a": 0.9, "b": 1.0, "c": 1.1, "d": 0.2}
    truth = np.array([auroc_of(lift) for lift in lifts.values()])
    rng, rounds = np.random.default_rng(3), 100
    found = [mean_aurocs(evaluation(scores(rng, lifts, 60), lifts, 2), SETS) for _ in range(rounds)]
    assert np.mean([joint.best()[2] for joint in found]) > 0.9
    assert not np.mean([joint.best()[3] for joint in found])
    ends = [joint.ends() for joint in found]
    together = np.mean([((low <= truth) & (truth <= high)).all() for low, high in ends])
    assert together > 0.89


def auroc_of(lift):
    """Of two normal distributions with that distance."""
    from scipy.stats import norm

    return norm.cdf(lift / np.sqrt(2))


def test_the_verdict_does_not_depend_on_the_seed():
    table = scores(np.random.default_rng(5), {"a": 1.0, "b": 1.02, "c": 1.04, "msp": 0.5})
    names = ["a", "b", "c", "msp"]
    found = [
        verdict_of(
            Evaluation(table, names, n_bootstrap=50, seed=seed), "net", dict.fromkeys(names, 1)
        )
        for seed in range(3)
    ]
    for rows in found[1:]:
        for metric in ("best_set", "recommended", "detects", "behind"):
            one, other = (
                f.loc[f["metric"] == metric, ["detector", "value"]] for f in (rows, found[0])
            )
            pd.testing.assert_frame_equal(one, other)


def test_the_cheapest_of_the_best_is_recommended_then_the_highest():
    lifts = {"slow": 2.03, "cheap": 2.0, "cheap_too": 1.99, "bad": 0.5}
    table = scores(np.random.default_rng(6), lifts, shared=0.97)
    rows = verdict(table, lifts, {"slow": 3, "cheap": 0, "cheap_too": 0, "bad": 0})
    best = names_of(rows, "best_set")
    assert {"slow", "cheap"} <= best
    assert "bad" not in best
    aurocs = {n: value(rows, "mean_auroc", n)["value"] for n in ("cheap", "cheap_too") if n in best}
    assert names_of(rows, "recommended") == {max(aurocs, key=aurocs.get)}


def test_numbers_are_those_of_the_table():
    names = ["a", "b"]
    table = scores(np.random.default_rng(7), {"a": 1.0, "b": 2.0})
    rows, shown = verdict(table, names), evaluation(table, names)
    for place, ood in enumerate(shown.ood_names):
        for metric in ("auroc", "fpr95"):
            found = value(rows, metric, "b", ood)
            assert found["value"] == shown.sets.cell(metric, place).values[1]
            assert found["ci_low"] == shown.sets.cell(metric, place).ends[0, 1]
    assert value(rows, "mean_auroc", "b")["value"] == shown.mean("auroc", SETS)[0][1]
    assert value(rows, "mean_fpr95", "b")["value"] == shown.mean("fpr95", SETS)[0][1]


def test_a_dataset_where_another_is_better_and_one_where_it_fails_are_named():
    rng = np.random.default_rng(8)
    easy, hard = (
        scores(rng, {"a": 3.0, "b": 1.0}),
        scores(rng, {"a": 0.0, "b": 0.7}, sets=("near",)),
    )
    table = pd.concat([easy[easy["dataset"] != "near"], hard[hard["dataset"] == "near"]])
    rows = verdict(table, ["a", "b"], {"a": 0, "b": 1})
    assert value(rows, "above_chance", "a", "far")["value"] == 1
    assert value(rows, "above_chance", "a", "near")["value"] == 0
    lead = value(rows, "lead_of_other", "b", "near")
    assert 0 < lead["ci_low"] < lead["value"] < lead["ci_high"]
    assert value(rows, "lead_of_other", "b", "far") is None


def test_inverted_scores_are_called_so_and_nothing_is_recommended():
    rows = verdict(scores(np.random.default_rng(9), {"a": -1.0, "b": -2.0}), ["a", "b"])
    assert names_of(rows, "inverted") == {"a", "b"}
    assert value(rows, "detects")["value"] == 0
    assert value(rows, "recommended", "a") is None
    marks = best_detectors(
        evaluation(scores(np.random.default_rng(9), {"a": -1.0, "b": -2.0}), "ab")
    )
    assert not marks["best"].any()  # nothing below chance has a star


def test_small_and_flagged_datasets_do_not_count_but_are_listed():
    rng, names = np.random.default_rng(10), ["a", "b"]
    table = scores(rng, {"a": 1.0, "b": 2.0}, sets=("one", "two", "few"))
    few = table["dataset"].eq("few") & table.groupby("dataset").cumcount().ge(7)
    rows = verdict(table[~few], names, flagged=["two"])
    assert value(rows, "too_few", ood="few")["value"] == 7
    assert value(rows, "flagged", ood="two")["n_ood"] == 200
    alone = evaluation(table[~few], names).sets.by_metric["auroc"][0]
    assert value(rows, "mean_auroc", "b")["value"] == alone[1, 0]
    assert names_of(rows, "recommended") == {"b"}
    assert set(rows.loc[rows["metric"] == "auroc", "dataset"]) == {"one", "two", "few"}
    # Where that would leave none, all count.
    rows = verdict(table[~few], names, flagged=["one", "two", "few"])
    assert value(rows, "mean_auroc", "b")["n_ood"] == 407


@pytest.mark.parametrize(("n", "n_id"), [(28, 39), (2, 2), (1, 5), (5, 1)])
def test_few_images_widen_the_intervals_and_never_silence(n, n_id):
    names = ["a", "b", "msp"]
    rows = verdict(
        scores(np.random.default_rng(11), dict.fromkeys(names, 1.0), n, n_id=n_id), names
    )
    assert names_of(rows, "best_set") == set(names)
    ends = rows.loc[rows["metric"] == "mean_auroc", ["ci_low", "ci_high"]]
    if n == 28:
        assert (ends["ci_high"] - ends["ci_low"]).between(0.1, 0.7).all()
    else:
        assert value(rows, "detects")["value"] == 0


def test_one_detector_and_a_constant_score():
    table = scores(np.random.default_rng(12), {"a": 2.0}).assign(flat=1.0)
    assert names_of(verdict(table, ["a"]), "recommended") == {"a"}
    rows = verdict(table, ["flat"])
    assert value(rows, "detects")["value"] == 0
    rows = verdict(table, ["flat", "a"], {"flat": 0, "a": 3})
    assert names_of(rows, "recommended") == names_of(rows, "best_set") == {"a"}


def test_perfect_separation_has_an_interval_of_its_size():
    for n, least in ((30, 0.8), (400, 0.98)):
        rows = verdict(scores(np.random.default_rng(13), {"a": 50.0, "b": 60.0}, n), ["a", "b"])
        found = value(rows, "mean_auroc", "a")
        assert found["value"] == 1
        assert least < found["ci_low"] < 1


def test_copies_of_photographs_count_as_their_photographs():
    rng = np.random.default_rng(14)
    table = scores(rng, {"a": 0.5, "b": 0.6}, n=12)
    table["path"] = table["dataset"] + table["index"].astype(str)
    copies = pd.concat([table[table["dataset"] != "test"].assign(made_of=table["path"])] * 20)
    many = pd.concat([table[table["dataset"] == "test"], copies], ignore_index=True)
    noise = rng.normal(scale=1e-6, size=len(many))
    few, grown = (
        mean_aurocs(evaluation(part, "ab"), SETS)
        for part in (table, many.assign(a=many["a"] + noise))
    )
    np.testing.assert_allclose(grown.covariance, few.covariance, rtol=0.1)


def test_all_images_of_one_photograph_say_so_without_a_traceback():
    table = scores(np.random.default_rng(15), {"a": 1.0, "b": 1.0}, n=20)
    table["path"], table["made_of"] = "one.png", "one.png"
    rows = verdict(table, ["a", "b"])
    assert value(rows, "detects")["value"] == 0
    assert value(rows, "recommended", "a") is None


@pytest.mark.slow
def test_a_thousand_datasets():
    sets = [f"set{n}" for n in range(1000)]
    table = scores(np.random.default_rng(16), {"a": 1.0, "b": 2.0}, n=12, sets=sets)
    rows = verdict(table, ["a", "b"], draws=10)
    assert names_of(rows, "recommended") == {"b"}
