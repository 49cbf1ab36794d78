"""DeLong, paired bootstrap, Holm and the group of the best."""

import numpy as np
import pytest
from drawn_metrics import bootstrap
from scipy import stats

from ood_lab.metrics import (
    auroc,
    best_group,
    bootstrap_p_values,
    delong,
    delong_p_values,
    fpr_at_tpr,
    holm,
)


def scores(n, m, shifts, seed=0, shared=0.7):
    """Detectors that look at the same samples: correlated scores."""
    rng = np.random.default_rng(seed)
    d = len(shifts)
    x = shared * rng.normal(size=(n, 1)) + np.sqrt(1 - shared**2) * rng.normal(size=(n, d))
    y = shared * rng.normal(size=(m, 1)) + np.sqrt(1 - shared**2) * rng.normal(size=(m, d))
    return x, y + np.array(shifts)


def brute_delong(x, y):
    """From the full matrix of pairwise wins."""
    kernel = np.stack(
        [
            (y[:, None, d] > x[None, :, d]) + 0.5 * (y[:, None, d] == x[None, :, d])
            for d in range(x.shape[1])
        ]
    )
    of_ood, of_id = kernel.mean(axis=2), kernel.mean(axis=1)
    return kernel.mean(axis=(1, 2)), np.cov(of_ood) / len(y) + np.cov(of_id) / len(x)


@pytest.mark.parametrize("decimals", [8, 0])
def test_delong_is_the_definition(decimals):
    x, y = (np.round(s, decimals) for s in scores(70, 40, [0.5, 1, 1.2]))
    value, covariance = delong(x, y)
    expected, expected_covariance = brute_delong(x, y)
    np.testing.assert_allclose(value, expected, atol=1e-12)
    np.testing.assert_allclose(value, [auroc(x[:, d], y[:, d]) for d in range(3)], atol=1e-12)
    np.testing.assert_allclose(covariance, expected_covariance, atol=1e-12)


def test_delong_p_value_is_the_normal_test_of_the_difference():
    x, y = scores(200, 100, [0.8, 1.1])
    value, covariance = delong(x, y)
    variance = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
    expected = 2 * stats.norm.sf(abs(value[0] - value[1]) / np.sqrt(variance))
    p = delong_p_values(value, covariance)
    assert p[0, 1] == p[1, 0] == pytest.approx(expected)
    assert p[0, 0] == p[1, 1] == 1


def test_same_ranking_is_equal_and_perfect_against_chance_is_not():
    x, y = np.arange(30.0), np.arange(30.0) + 100
    x3 = np.stack([x, np.exp(x / 9), 0 * x], 1)
    y3 = np.stack([y, np.exp(y / 9), 0 * y], 1)
    p = delong_p_values(*delong(x3, y3))
    assert p[0, 1] == 1
    assert p[0, 2] == 0


def test_bootstrap_agrees_with_delong_on_the_auroc():
    x, y = scores(300, 200, [0.9, 1.1, 1.4], seed=3)
    value, covariance = delong(x, y)
    drawn = bootstrap(x, [y], draws=2000)["auroc"][:, 0]
    z = stats.norm.isf(bootstrap_p_values(value, drawn) / 2)
    expected = stats.norm.isf(delong_p_values(value, covariance) / 2)
    np.testing.assert_allclose(z, expected, rtol=0.12)


def test_bootstrap_p_values_leave_nan_draws_out():
    rng = np.random.default_rng(0)
    draws = rng.normal([[0.5], [0.6]], 0.05, (2, 400))
    broken = np.concatenate([draws, [[np.nan] * 5, [0.5] * 5]], axis=1)
    expected = bootstrap_p_values([0.5, 0.6], draws)
    np.testing.assert_allclose(bootstrap_p_values([0.5, 0.6], broken), expected)
    with_missing = bootstrap_p_values([0.5, np.nan], draws)
    assert np.isnan(with_missing[0, 1])


def test_holm_by_hand_and_by_its_step_down_rule():
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm([0.5, 0.9]), [1, 1])
    np.testing.assert_allclose(holm([0.04, np.nan, 0.01]), [0.04, np.nan, 0.02])
    assert holm([]).size == 0
    p = np.random.default_rng(0).random(30) ** 4
    adjusted, order = holm(p), np.argsort(p)
    rejected = 0
    while rejected < 30 and p[order[rejected]] < 0.05 / (30 - rejected):
        rejected += 1
    assert 0 < rejected < 30
    assert set(np.flatnonzero(adjusted < 0.05)) == set(order[:rejected])


def test_best_group_holds_the_best_and_what_cannot_be_told_from_it():
    p = np.ones((4, 4))
    p[0, 1:] = p[1:, 0] = [0.04, 0.03, 0.001]
    # Holm over three tests: 0.001 * 3 is significant, 0.03 * 2 and 0.04 are not.
    best = best_group([0.9, 0.8, 0.7, 0.6], p, higher_is_better=True)
    assert best.tolist() == [True, True, True, False]
    best = best_group([0.1, 0.2, 0.3, 0.4], p, higher_is_better=False)
    assert best.tolist() == [True, True, True, False]
    # What is behind a detector that is worse is not as good as the best, whatever its own test.
    best = best_group([0.9, 0.6, 0.7, 0.8], p, higher_is_better=True)
    assert best.tolist() == [True, False, False, False]
    assert best_group([np.nan, 0.8], np.ones((2, 2)), higher_is_better=True).tolist() == [0, 1]
    assert not best_group([np.nan] * 2, np.ones((2, 2)), higher_is_better=True).any()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (([1.0], [1.0, 2.0]), "two samples on each side, got 1 ID and 2 OOD"),
        (([1.0, np.nan], [1.0, 2.0]), "id_scores: 1 of 2"),
        ((np.ones((3, 2)), np.ones((3, 1))), "id_scores have 2 detectors, ood_scores 1"),
    ],
)
def test_bad_input_is_named(args, message):
    with pytest.raises(ValueError, match=message):
        delong(*args)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "m"), [(200, 200), (1000, 100)])
def test_equal_detectors_differ_in_about_5_percent(n, m):
    rejected, repetitions = (
        dict.fromkeys(("delong", "fpr95_id_positive", "fpr95_ood_positive"), 0),
        1000,
    )
    for seed in range(repetitions):
        x, y = scores(n, m, [1.5, 1.5], seed)
        drawn = bootstrap(x, [y], draws=300, seed=seed)
        rejected["delong"] += delong_p_values(*delong(x, y))[0, 1] < 0.05
        for metric, positive in (("fpr95_id_positive", "id"), ("fpr95_ood_positive", "ood")):
            values = [fpr_at_tpr(x[:, d], y[:, d], positive=positive) for d in (0, 1)]
            rejected[metric] += bootstrap_p_values(values, drawn[metric][:, 0])[0, 1] < 0.05
    share = {test: count / repetitions for test, count in rejected.items()}
    assert all(0.02 < s < 0.075 for s in share.values()), share


def test_without_a_test_the_best_stands_alone():
    """One draw tells nothing: not being tested is not being as good."""
    nan = np.nan
    p_values = [[1, nan, 0.3], [nan, 1, nan], [0.3, nan, 1]]
    best = best_group([0.9, 0.5, 0.8], p_values, higher_is_better=True)
    assert best.tolist() == [True, False, True]
