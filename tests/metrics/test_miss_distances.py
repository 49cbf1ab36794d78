"""`follow`: does a distance predict what is missed? Beside scikit-learn, and under no relation."""

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import roc_auc_score

from ood_lab.metrics import follow, miss_rates


def drawn(strength, n=600, seed=0):
    rng = np.random.default_rng(seed)
    far = rng.normal(size=n)
    missed = rng.random(n) < 1 / (1 + np.exp(strength * far))
    return far, missed


def test_the_share_of_pairs_is_an_auroc_and_within_tenths_a_weighted_one():
    far, missed = drawn(1.5)
    score = np.random.default_rng(1).normal(size=len(far)) + 0.5 * far
    found = follow(far, missed, score)
    assert found.nearer.value == pytest.approx(roc_auc_score(~missed, far), abs=1e-12)
    tenths = np.argsort(np.argsort(score)) // 60
    parts = [(missed[tenths == t], far[tenths == t]) for t in range(10)]
    weights = [m.sum() * (~m).sum() for m, _ in parts]
    values = [roc_auc_score(~m, f) for m, f in parts]
    assert found.beyond.value == pytest.approx(np.average(values, weights=weights), abs=0.02)


def test_the_falling_curve_is_that_of_scikit_learn():
    far, missed = drawn(0.4)
    medians, n, rates, falling = miss_rates(far, missed)
    theirs = IsotonicRegression(increasing=False).fit(medians, rates, sample_weight=n)
    np.testing.assert_allclose(falling, theirs.predict(medians), atol=1e-12)
    assert n.tolist() == [60] * 10


@pytest.mark.slow
def test_a_strong_relation_is_told_and_none_is_not():
    strong = follow(*drawn(3, n=2000))
    assert strong.nearer.low > 0.8
    assert strong.explained.low > 0.9
    opposite = follow(*drawn(-3, n=2000))
    assert opposite.nearer.high < 0.2
    assert opposite.explained.value == 0
    nothing = [follow(*drawn(0, seed=seed)) for seed in range(100)]
    told = sum(not found.nearer.low <= 0.5 <= found.nearer.high for found in nothing)
    assert told <= 12
    assert np.median([found.explained.value for found in nothing]) == 0
    assert np.mean([found.explained.low > 0.3 for found in nothing]) <= 0.05


def test_what_the_score_says_already_is_not_told_again():
    rng = np.random.default_rng(3)
    score = rng.normal(size=4000)
    far = score + 0.5 * rng.normal(size=4000)  # follows the misses through the score alone
    found = follow(far, score + 0.1 * rng.normal(size=4000) < 0, score)
    assert found.nearer.low > 0.8
    assert found.beyond.value < found.nearer.value - 0.2


def test_few_misses_give_no_number():
    far = np.arange(100.0)
    assert follow(far, far < 5) is None
    with pytest.raises(ValueError, match="finite"):
        follow(np.full(100, np.nan), far < 50)
