"""The statistics against the values of the paper that could be recomputed, and exact cases."""

import numpy as np
import pytest
from scipy.stats import binomtest

from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.statistics.degradation import (
    METRICS,
    degradation,
    permutation_p,
    signature_tost,
    within,
)
from ood_lab.lvlm.statistics.mmd import ClassMmd, equivalence, median_bandwidth
from ood_lab.lvlm.statistics.model_tables import (
    add_degradations,
    correlation_test,
    left_tail_p,
    resampling_test,
    shared_pairs,
    spread_test,
)
from ood_lab.lvlm.statistics.statistic_tables import Findings
from ood_lab.lvlm.statistics.training_texts import semantic_overlap
from ood_lab.metrics.resampling.intervals import bayes_interval, clopper_pearson

#: Degradations of nine models from Table 8, and with the value of the prose for Qwen2.5.
HARD = [33.16, 30.42, 7.71, 11.64, 24.93, 16.60, 31.65, 5.96, 10.84]
OOD = [15.45, 16.08, 27.65, 17.32, 15.00, 11.81, 17.64, 25.06, 22.80]
PROSE = [*HARD[:6], 33.62, *HARD[7:]]


@pytest.mark.parametrize(
    ("k", "exact", "bayes", "upper"),
    [(49, 0.893530, 0.895525, 0.999494), (27, 0.393242, 0.403419, 0.681851)],
)
def test_bounds_of_the_screening_of_50_models(k, exact, bayes, upper):
    found = clopper_pearson(k, 50)
    assert found[0] == pytest.approx(exact, abs=5e-7)
    assert found[1] == pytest.approx(upper, abs=5e-7)
    assert bayes_interval(k, 50)[0] == pytest.approx(bayes, abs=5e-7)
    reference = binomtest(k, 50).proportion_ci(0.95, "exact")
    assert found == pytest.approx((reference.low, reference.high))


def test_overlap_counts_what_a_text_of_the_same_image_names():
    texts = {"1": ["Two Buses and a box."], "2": ["a carpet"], "3": ["people in a dining room"]}
    pairs = [("1", "bus"), ("1", "car"), ("2", "car"), ("3", "person"), ("4", "bus")]
    found = semantic_overlap(pairs, texts, 0.9, {})
    assert (found.expressed, found.pairs, found.share) == (2, 5, 0.4)
    assert found.upper == pytest.approx(clopper_pearson(2, 5)[1])
    assert found.below
    assert not semantic_overlap(pairs, texts, 0.5, {}).below


def mmd2(first, first_classes, second, second_classes, bandwidth):
    pool, classes = np.concatenate([first, second]), np.concatenate([first_classes, second_classes])
    inside = np.arange(len(pool)) < len(first)
    return ClassMmd(pool, classes, bandwidth)(inside, ~inside)


def test_mmd_of_equal_sets_is_0_and_of_disjoint_classes_2():
    features = np.random.default_rng(0).normal(size=(40, 3))
    classes = np.arange(40) % 4
    assert mmd2(features, classes, features, classes, 1.0) == pytest.approx(0, abs=1e-12)
    same = np.ones((10, 2))
    one, other = np.zeros(10), np.ones(10)
    assert mmd2(same, one, same, other, 1.0) == pytest.approx(2.0)


def test_mmd_equals_the_definition_and_knows_no_order_within_a_class():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(12, 2)), rng.normal(0.5, 1, size=(9, 2))
    ca, cb = rng.integers(0, 3, 12), rng.integers(0, 3, 9)

    def gram(x, cx, y, cy):
        squares = ((x[:, None] - y[None]) ** 2).sum(-1)
        return np.exp(-squares / (2 * 0.7**2)) * (cx[:, None] == cy[None])

    aa, bb, ab = gram(a, ca, a, ca), gram(b, cb, b, cb), gram(a, ca, b, cb)
    assert mmd2(a, ca, b, cb, 0.7) == pytest.approx(aa.mean() + bb.mean() - 2 * ab.mean())
    order = np.argsort(ca, kind="stable")[::-1]
    assert mmd2(a[order], ca[order], b, cb, 0.7) == pytest.approx(mmd2(a, ca, b, cb, 0.7))


def test_equivalence_tells_a_shifted_set_from_another_sample():
    rng = np.random.default_rng(2)
    train, classes = rng.normal(size=(120, 2)), np.arange(120) % 2
    val, far = rng.normal(size=(60, 2)), rng.normal(3.0, 1, size=(60, 2))
    same = equivalence(train, classes, val, classes[:60], draws=100)
    other = equivalence(train, classes, far, classes[:60], draws=100)
    assert same.sizes == (60, 60)
    assert same.mmd2 < same.permutation
    assert other.low > other.threshold
    assert not other.equivalent
    few = equivalence(train, classes, val[:30], classes[:30], draws=20)
    assert few.sizes == (90, 30)


def test_expected_is_the_mean_over_subsets():
    rng = np.random.default_rng(4)
    features, classes = rng.normal(size=(14, 2)), np.arange(14) % 2
    inside = np.arange(14) < 8
    statistic = ClassMmd(features, classes, 1.0)
    assert statistic.expected(inside, ~inside, (8, 6)) == pytest.approx(statistic(inside, ~inside))
    drawn = []
    for _ in range(4000):
        first, second = np.zeros(14), np.zeros(14)
        first[rng.choice(8, 5, replace=False)] = 1
        second[8 + rng.choice(6, 3, replace=False)] = 1
        drawn.append(statistic(first, second))
    spread = np.std(drawn) / np.sqrt(len(drawn))
    found = statistic.expected(inside, ~inside, (5, 3))
    assert found == pytest.approx(np.mean(drawn), abs=4 * spread)


def verdicts(shift, trials, n=120, m=60):
    """How often samples of two normal distributions are equivalent, and by the paper's rule."""
    found = []
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        train, val = rng.normal(size=(n, 4)), rng.normal(size=(m, 4))
        val[:, 0] += shift
        classes = rng.integers(0, 3, n), rng.integers(0, 3, m)
        one = equivalence(train, classes[0], val, classes[1], draws=150, seed=seed)
        found.append((one.equivalent, one.equivalent_published))
    return np.mean(found, axis=0)


def test_identical_distributions_can_be_equivalent():
    """The bias of sampling counts once: with two of it, they never were."""
    assert verdicts(0.0, 20)[0] >= 0.25


@pytest.mark.slow
def test_both_error_rates_of_equivalence():
    """Distributions that are 1.1 apart differ by the threshold, .027 of population MMD^2."""
    same, same_published = verdicts(0.0, 100)
    at_threshold, there_published = verdicts(1.1, 100)
    assert 0.3 <= same <= 0.65  # about a half is what any test can reach at this threshold
    assert at_threshold <= 0.05 + 0.04  # and two standard errors
    assert verdicts(1.5, 40)[0] == 0
    # The paper's rule does not tell the one from the other.
    assert 0.35 <= same_published <= 0.65
    assert 0.35 <= there_published <= 0.7


def test_v_statistic_grows_as_samples_shrink():
    """Its bias is why parts of train must have the sizes that are compared."""
    rng = np.random.default_rng(3)
    features = rng.normal(size=(200, 4))
    statistic = ClassMmd(features, np.zeros(200), median_bandwidth(features))
    small = statistic(np.arange(200) < 10, (np.arange(200) >= 10) & (np.arange(200) < 20))
    large = statistic(np.arange(200) < 100, np.arange(200) >= 100)
    assert small > 3 * large


def pairs_of(accuracy, n, rng):
    """Question pairs of a model that is right so often."""
    right = rng.random((n, 2)) < accuracy
    return np.stack([right[:, 0], ~right[:, 1], right[:, 1], ~right[:, 0]], axis=1).astype(int)


def test_degradation_by_bootstrap_and_permutation():
    rng = np.random.default_rng(0)
    id_pairs, ood_pairs = pairs_of(0.9, 400, rng), pairs_of(0.7, 300, rng)
    found = degradation(id_pairs, ood_pairs, resampling=Resampling(draws=2000))
    assert set(found) == set(METRICS)
    accuracy = found["accuracy"]
    assert accuracy.low < 0.2 < accuracy.high
    assert accuracy.p == pytest.approx(4.998e-4, abs=1e-7)  # no permutation reaches it
    same = degradation(id_pairs, pairs_of(0.9, 300, rng), resampling=Resampling(draws=500))[
        "accuracy"
    ]
    assert same.low < 0 < same.high
    assert same.p > 0.02


def test_permutation_p_is_never_0():
    assert permutation_p(1.0, np.zeros(2000)) == pytest.approx(1 / 2001)
    assert permutation_p(0.0, np.zeros(2000)) == 1.0


def test_signature_is_the_widest_interval_of_the_models():
    rng = np.random.default_rng(0)
    models = {
        name: (pairs_of(a, 100, rng), pairs_of(b, 100, rng))
        for name, a, b in (("m", 0.9, 0.6), ("k", 0.8, 0.7), ("other", 0.9, 0.1))
    }
    results = Findings()
    add_degradations(
        results, models, ["m", "k"], eta_resample=100, resampling=Resampling(200, seed=0)
    )
    low, high = results.tables["signature"].set_index("metric").loc["accuracy"]
    draws = Resampling(200)
    every = {name: degradation(*models[name], draws)["accuracy"] for name in ("m", "k")}
    assert low == min(m.low for m in every.values())
    assert high == max(m.high for m in every.values())
    assert [*results.tables["tost"]["model"].unique()] == ["other"]


@pytest.mark.parametrize(
    ("eta", "verdicts"),
    [
        ((7.04, 7.26, 9.62, 7.65, 14.20), (True, True, True, True, True)),  # the paper's margins
        ((5.17, 4.76, 6.73, 3.14, 10.51), (False, True, False, False, False)),  # at full size
    ],
)
def test_the_verdict_on_gpt_4o_depends_on_the_resample_size(eta, verdicts):
    intervals = [(4.67, 6.09), (0.68, 2.19), (7.69, 9.58), (-7.51, -5.68), (8.74, 11.55)]
    found = tuple(within(*ends, margin) for ends, margin in zip(intervals, eta, strict=True))
    assert found == verdicts


def test_tost_of_a_model_like_the_references_and_of_another():
    rng = np.random.default_rng(5)
    references = {n: (pairs_of(0.9, 3000, rng), pairs_of(0.7, 3000, rng)) for n in "ab"}
    like = (pairs_of(0.9, 3000, rng), pairs_of(0.7, 3000, rng))
    unlike = (pairs_of(0.9, 3000, rng), pairs_of(0.5, 3000, rng))
    same = signature_tost(like, references, resampling=Resampling(draws=300))["accuracy"]
    other = signature_tost(unlike, references, resampling=Resampling(draws=300))["accuracy"]
    assert same.equivalent
    assert same.eta_resample == 100
    assert not other.equivalent
    assert other.delta == pytest.approx(0.2, abs=0.05)
    # 100 questions a side: sd = sqrt(0.09 / 100 + 0.21 / 100).
    assert same.eta == pytest.approx(0.055, rel=0.1)
    fewer = signature_tost(like, references, resampling=Resampling(draws=300), eta_resample=400)[
        "accuracy"
    ]
    assert fewer.eta < 0.6 * same.eta


@pytest.mark.parametrize(
    ("hard", "f", "p", "pearson", "rank"),
    [
        (HARD, 4.3376, 0.02660, (-0.6626, 0.0518), (-0.6333, 0.0671)),
        (PROSE, 4.5772, 0.02281, (-0.6497, 0.0582), (-0.5833, 0.0992)),
    ],
)
def test_hard_against_ood_of_table_8(hard, f, p, pearson, rank):
    assert spread_test(hard, OOD) == pytest.approx({"f": f, "p": p}, abs=5e-5)
    found = correlation_test(hard, OOD)
    assert [*found] == ["pearson", "pearson_p", "spearman", "spearman_p"]
    assert [*found.values()] == pytest.approx([*pearson, *rank], abs=5e-5)


def test_subsets_of_hard_pairs_are_the_baseline_of_ood():
    rng = np.random.default_rng(0)
    ability = np.linspace(0.95, 0.5, 9)
    hard = np.stack([pairs_of(a, 1200, rng) for a in ability])
    # On OOD pairs all models lose alike, and the better ones lose more.
    found, _ = resampling_test(np.full(9, 0.97), np.linspace(0.80, 0.84, 9), hard, draws=1000)
    assert found["pairs"] == 500
    assert found["variance_p"] == found["pearson_p"] == pytest.approx(0.000999, abs=1e-6)
    assert found["lowest_pearson"] > 0.9
    assert found["lowest_spearman"] > 0.8
    assert left_tail_p(0.5, np.array([0.1, 0.9, 0.8])) == pytest.approx(0.5)


def test_overlap_of_ood_and_hard_pairs_is_a_percentage():
    ood = [(str(i), "c") for i in range(5079)]
    hard = [(str(i), "c") for i in range(5079 - 206, 5079 - 206 + 2641)]
    found = shared_pairs(ood, hard)
    assert found["shared"] == 206
    assert round(100 * found["of_ood"], 2) == 4.06
    assert round(100 * found["of_hard"], 2) == 7.80
