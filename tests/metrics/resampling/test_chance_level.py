"""Which accuracies, and which numbers of flagged images, are luck."""

import math

import numpy as np
import pytest
from scipy import stats

from ood_lab.metrics import at_chance, flagged_p_value, threshold_at_tpr


@pytest.mark.parametrize(
    ("accuracy", "n", "chance", "luck"),
    [
        (0.10, 5000, 0.1, True),
        (0.108, 5000, 0.1, True),
        (0.109, 5000, 0.1, False),
        (0.02, 5000, 0.1, True),  # below chance is no better
        (4 / 6, 6, 1 / 3, False),  # of few images, two standard errors are half of the scale
        (0.5, 6, 1 / 3, True),
        (0.49, 600, 0.49, True),  # always the largest class of three
        (0.49, 600, 1 / 3, False),
        (1.0, 4, 0.5, False),
        (1.0, 4, 1.0, False),
        (math.nan, 100, 0.1, False),
        (0.0, 0, 0.0, False),
    ],
)
def test_an_accuracy_that_is_luck(accuracy, n, chance, luck):
    assert at_chance(accuracy, n, chance) == luck


@pytest.mark.parametrize(("n", "held_out", "rank"), [(1, 19, 1), (80, 100, 5), (500, 50, 2)])
def test_flagged_images_are_beta_binomial(n, held_out, rank):
    """A threshold that the rank-th highest held-out score makes; rank - 1 are above it."""
    flagged = np.arange(n + 1)
    found = [flagged_p_value(int(x), n, rank - 1, held_out) for x in flagged]
    tail = stats.betabinom.sf(flagged - 1, n, rank, held_out + 1 - rank)
    np.testing.assert_allclose(found, tail, rtol=1e-6, atol=1e-12)
    assert found[0] == pytest.approx(1)


def test_flagged_images_by_simulation():
    """The threshold of 60 held-out scores, again for each of 20,000 draws of 40 new ones."""
    runs, held_out, n, rank = 20_000, 60, 40, 3
    rng = np.random.default_rng(1)
    thresholds = np.sort(rng.gumbel(size=(runs, held_out)), axis=1)[:, -rank]
    flagged = (rng.gumbel(size=(runs, n)) > thresholds[:, None]).sum(axis=1)
    by_number = np.array([flagged_p_value(x, n, rank - 1, held_out) for x in range(n + 1)])
    for x in (1, 2, 4, 7):
        share = (flagged >= x).mean()
        error = np.sqrt(by_number[x] * (1 - by_number[x]) / runs)
        assert abs(share - by_number[x]) < 4 * error
    false = (by_number[flagged] <= 0.05).mean()
    assert 0.02 < false <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / runs)
    # A binomial test takes the threshold for exact, and is fooled far more often.
    binomial = stats.binom.sf(flagged - 1, n, rank / (held_out + 1))
    assert (binomial <= 0.05).mean() > 0.08


@pytest.mark.parametrize("counts", [(12, 40, 3, 50), (0, 40, 3, 50), (9, 9, 5, 5), (1, 1, 0, 1)])
def test_a_given_threshold_is_fishers_exact_test(counts):
    x, n, c, m = counts
    expected = stats.fisher_exact([[x, n - x], [c, m - c]], alternative="greater").pvalue
    assert flagged_p_value(x, n, c, m) == pytest.approx(expected)


@pytest.mark.parametrize(("tpr", "threshold"), [(0.95, 2.0), (1.0, 1.0), (0.5, 11.0), (0.04, 20.0)])
def test_the_highest_threshold_that_detects_enough(tpr, threshold):
    scores = np.arange(20, 0, -1.0)
    assert threshold_at_tpr(scores, tpr) == threshold
    with pytest.raises(ValueError, match="share in"):
        threshold_at_tpr(scores, 0.0)
