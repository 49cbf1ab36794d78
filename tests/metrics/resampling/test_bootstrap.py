"""The bootstrap against resampled arrays built in full, and its intervals."""

import numpy as np
import pytest
from drawn_metrics import bootstrap
from scipy import stats
from sklearn import metrics as sk

from ood_lab.common import cpu_cores
from ood_lab.common.random_streams import Resampling
from ood_lab.metrics import (
    auroc,
    auroc_interval,
    delong,
    fpr_at_tpr,
    percentile_interval,
    wilson_interval,
)
from ood_lab.metrics.record import OF_SETS
from ood_lab.metrics.resampling import stratified_bootstrap
from ood_lab.metrics.resampling.group_intervals import PhotographGroups
from ood_lab.metrics.resampling.stratified_bootstrap import drawn_metrics
from ood_lab.metrics.resampling.weighted_counts import Groups, RankedScores


def at_rank(scores, rank, share):
    """``share(threshold)`` between the two samples around a fractional rank from below."""
    ordered, rank = np.sort(scores), np.clip(rank, 1, len(scores))
    low = int(np.floor(rank))
    first, second = (share(ordered[min(k, len(ordered)) - 1]) for k in (low, low + 1))
    return first + (rank - low) * (second - first)


def naive(id_scores, ood_scores, method):
    y = np.r_[np.zeros(len(id_scores)), np.ones(len(ood_scores))]
    s = np.r_[id_scores, ood_scores]

    def area(positive, score):
        if method == "average_precision":
            return sk.average_precision_score(positive, score)
        precision, recall, _ = sk.precision_recall_curve(positive, score)
        return sk.auc(recall, precision)

    return [
        sk.roc_auc_score(y, s),
        at_rank(id_scores, 0.95 * len(id_scores) + 0.5, lambda t: np.mean(ood_scores <= t)),
        at_rank(ood_scores, 0.05 * len(ood_scores) + 0.5, lambda t: np.mean(id_scores >= t)),
        area(1 - y, -s),
        area(y, s),
    ]


@pytest.mark.parametrize("method", ["average_precision", "trapezoid"])
@pytest.mark.parametrize("tied", [False, True])
def test_counts_give_the_metrics_of_the_resampled_arrays(method, tied):
    rng = np.random.default_rng(3)
    sizes = [31, 1, 8, 110]
    id_scores = rng.normal(size=53)
    blocks = [rng.normal(g, 1, m) for g, m in enumerate(sizes)]
    if tied:
        id_scores, blocks = np.round(id_scores), [np.round(b) for b in blocks]
    groups = Groups.of(sizes)
    id_counts = np.stack([Groups.of([53]).resample(rng) for _ in range(6)])
    ood_counts = np.stack([groups.resample(rng) for _ in range(6)])
    ranked = RankedScores(id_scores, np.concatenate(blocks), groups)
    drawn = ranked.draws(id_counts, ood_counts)
    got = np.stack([metric.draws(ranked, drawn, method) for metric in OF_SETS])
    splits = np.cumsum(sizes)[:-1]
    for b in range(6):
        resampled_id = np.repeat(id_scores, id_counts[b])
        for g, counts in enumerate(np.split(ood_counts[b], splits)):
            assert counts.sum() == sizes[g]
            expected = naive(resampled_id, np.repeat(blocks[g], counts), method)
            np.testing.assert_allclose(got[:, b, g], expected, rtol=2e-6)


def test_resampling_is_uniform_within_each_group():
    groups = Groups.of([3, 50])
    rng = np.random.default_rng(0)
    counts = np.stack([groups.resample(rng) for _ in range(4000)])
    assert (counts[:, :3].sum(axis=1) == 3).all()
    assert (counts[:, 3:].sum(axis=1) == 50).all()
    # Multinomial: mean 1, variance 1 - 1 / m.
    np.testing.assert_allclose(counts.mean(axis=0), 1, atol=0.08)
    assert counts[:, 3:].var() == pytest.approx(1 - 1 / 50, rel=0.03)
    assert counts[:, :3].var() == pytest.approx(1 - 1 / 3, rel=0.05)


def test_spread_of_the_draws_is_delongs_standard_error():
    rng = np.random.default_rng(0)
    id_scores, ood_scores = rng.normal(size=(300, 2)), rng.normal(1, 1, (150, 2))
    drawn = bootstrap(id_scores, [ood_scores], draws=4000)["auroc"][:, 0]
    value, covariance = delong(id_scores, ood_scores)
    np.testing.assert_allclose(drawn.mean(axis=1), value, atol=2e-3)
    np.testing.assert_allclose(np.cov(drawn)[[0, 1], [0, 1]], np.diag(covariance), rtol=0.12)


def test_detectors_and_groups_share_the_draws():
    rng = np.random.default_rng(1)
    x, y, z = rng.normal(size=80), rng.normal(1, 1, 40), rng.normal(2, 1, 30)
    drawn = bootstrap(np.stack([x, 2 * x + 5], 1), [np.stack([y, 2 * y + 5], 1)], draws=50)
    # The same detector on another scale: the same draws, not merely the same distribution.
    np.testing.assert_array_equal(drawn["auroc"][0], drawn["auroc"][1])
    alone = bootstrap(x, [y], draws=50)["fpr95_id_positive"]
    beside = bootstrap(x, [y, z], draws=50)["fpr95_id_positive"]
    assert beside.shape == (1, 2, 50)
    # The ID resample moves all sets together.
    drawn = bootstrap(x[:20], [np.sort(rng.normal(1, 1, 3000)) for _ in range(2)], draws=400)
    assert np.corrcoef(drawn["auroc"][0])[0, 1] > 0.9
    assert alone.shape == (1, 1, 50)


def test_draws_depend_on_the_seed_only(monkeypatch):
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=4000), rng.normal(1, 1, 3000)
    one = bootstrap(x, [y], draws=30, seed=4, aupr_method="trapezoid")
    monkeypatch.setattr(stratified_bootstrap, "_LITTLE", 0)
    monkeypatch.setattr(stratified_bootstrap, "_PART", 20_000)
    monkeypatch.setattr(cpu_cores, "usable_cores", lambda: 3)
    many = bootstrap(x, [y], draws=30, seed=4, aupr_method="trapezoid")
    assert set(one) == {"auroc", "fpr95_id_positive", "fpr95_ood_positive", "aupr_in", "aupr_out"}
    for metric in one:
        np.testing.assert_array_equal(one[metric], many[metric])
    assert (one["auroc"] != bootstrap(x, [y], draws=30, seed=5)["auroc"]).all()
    # A longer run begins with the shorter one.
    longer = bootstrap(x, [y], draws=40, seed=4)
    np.testing.assert_array_equal(longer["auroc"][..., :30], one["auroc"])


@pytest.mark.parametrize("copied", [False, True])
def test_draws_of_a_group_do_not_depend_on_which_are_wanted(copied):
    rng = np.random.default_rng(4)
    sizes = [40, 12, 20, 8]
    inside, *blocks = (rng.normal(g, 1, (m, 2)) for g, m in enumerate(sizes))
    names = [[f"{i % 9} of {m}" for i in range(m)] for m in sizes]
    options = {"resampling": Resampling(7, 1), "aupr_method": "trapezoid", "metrics": OF_SETS}
    options["copies"] = PhotographGroups.of(names) if copied else None
    every = bootstrap(inside, blocks, **options)
    some = drawn_metrics(inside, blocks, wanted=[0, 2], **options)
    for metric, draws in some.items():
        np.testing.assert_array_equal(draws, every[metric][:, [0, 2]])


def test_constant_scores_stay_at_chance():
    drawn = bootstrap(np.zeros(30), [np.zeros(20)], draws=20)
    assert (drawn["auroc"] == 0.5).all()
    assert (drawn["fpr95_id_positive"] == 1).all()
    assert (drawn["fpr95_ood_positive"] == 1).all()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (([1.0], [[]]), r"ood_scores\[0\]"),
        (([1.0, np.nan], [[1.0]]), "id_scores: 1 of 2 samples have a NaN"),
    ],
)
def test_bad_input_is_named(args, message):
    with pytest.raises(ValueError, match=message):
        bootstrap(*args)


def test_wilson_is_scipys():
    for k, n in ((0, 10), (3, 10), (10, 10), (871, 1100)):
        expected = stats.binomtest(k, n).proportion_ci(method="wilson")
        assert wilson_interval(k / n, n) == pytest.approx((expected.low, expected.high))
    with pytest.raises(ValueError, match="share"):
        wilson_interval(1.2, 10)


def test_percentile_interval_widens_in_small_samples_and_skips_nan():
    draws = np.random.default_rng(0).normal(size=100_000)
    low, high = percentile_interval(draws, n=10)
    # z of the expanded interval: sqrt(10 / 9) * t_9(0.975)
    assert -low == pytest.approx(np.sqrt(10 / 9) * stats.t.ppf(0.975, 9), rel=0.03)
    assert high == pytest.approx(-low, rel=0.05)
    np.testing.assert_allclose(percentile_interval(draws, 10**6), [-1.96, 1.96], atol=0.03)
    with_nan = np.stack([np.r_[draws, np.nan], np.full(100_001, np.nan)])
    low_nan, high_nan = percentile_interval(with_nan, 10)
    assert low_nan[0] == pytest.approx(low)
    assert high_nan[0] == pytest.approx(high)
    assert np.isnan([low_nan[1], high_nan[1]]).all()


def test_auroc_interval_stays_within_0_and_1_and_is_honest_about_perfection():
    low, high = auroc_interval(
        [1.0, 0.0, 0.5, 0.99], [[1.0] * 9, [0.0] * 9, [0.5] * 9, [0.97, 1, 1] * 3], 50
    )
    assert high[0] == 1
    assert 0.88 < low[0] < 0.95
    assert low[1] == 0
    assert 0.05 < high[1] < 0.12
    assert low[2] == high[2] == 0.5
    assert 0.8 < low[3] < 0.99 < high[3] <= 1


@pytest.mark.slow
@pytest.mark.parametrize(("n", "m", "shift"), [(200, 200, 1.5), (1000, 100, 1.0)])
def test_intervals_cover_the_truth_in_93_to_97_percent(n, m, shift):
    rng = np.random.default_rng(11)
    z = stats.norm.ppf(0.95)
    truth = {
        "auroc": stats.norm.cdf(shift / np.sqrt(2)),
        "fpr95_id_positive": stats.norm.cdf(z - shift),
        "fpr95_ood_positive": stats.norm.sf(shift - z),
    }
    hits, repetitions = dict.fromkeys(truth, 0), 1000
    for seed in range(repetitions):
        x, y = rng.normal(size=n), rng.normal(shift, 1, m)
        drawn = bootstrap(x, [y], draws=500, seed=seed)
        for metric, true in truth.items():
            draws = drawn[metric][0, 0]
            if metric == "auroc":
                low, high = auroc_interval(auroc(x, y), draws, min(n, m))
            else:
                low, high = percentile_interval(draws, min(n, m))
            hits[metric] += low <= true <= high
    coverage = {metric: hit / repetitions for metric, hit in hits.items()}
    assert all(0.93 <= share <= 0.97 for share in coverage.values()), coverage


def test_point_estimate_lies_amid_its_draws():
    rng = np.random.default_rng(8)
    x, y = rng.normal(size=500), rng.normal(1, 1, 400)
    drawn = bootstrap(x, [y], draws=500)
    for metric, positive in (("fpr95_id_positive", "id"), ("fpr95_ood_positive", "ood")):
        share = (drawn[metric] < fpr_at_tpr(x, y, positive=positive)).mean()
        assert 0.15 < share < 0.85
