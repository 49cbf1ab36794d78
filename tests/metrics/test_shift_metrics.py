"""DAD, correlation and sensitivity by their formulas and against scipy."""

import numpy as np
import pytest
from scipy import stats

from ood_lab.metrics import dad, shift_correlation, shift_sensitivity


def test_dad_counts_falling_pairs():
    assert dad([0.9, 0.7, 0.5, 0.3, 0.1]) == 10
    assert dad([0.1, 0.3, 0.5, 0.7, 0.9]) == 0
    assert dad([0.5] * 5) == 0
    assert dad([0.6, 0.8, 0.5, 0.5, 0.2]) == 8
    assert isinstance(dad([0.6, 0.5]), int)


def test_dad_is_the_double_loop_and_keeps_draws():
    fpr = np.random.default_rng(0).integers(0, 5, (6, 40)) / 4
    expected = [
        sum(column[j] > column[k] for j in range(6) for k in range(j + 1, 6)) for column in fpr.T
    ]
    assert dad(fpr).tolist() == expected


def test_dad_leaves_nan_out():
    assert dad([0.9, np.nan, 0.5, 0.1]) == dad([0.9, 0.5, 0.1]) == 3


def test_correlation_and_sensitivity_are_pearson_and_least_squares():
    values = np.random.default_rng(1).normal(size=(7, 5))
    for column, r, slope in zip(
        values.T, shift_correlation(values), shift_sensitivity(values), strict=True
    ):
        fit = stats.linregress(np.arange(1, 8), column)
        assert r == pytest.approx(fit.rvalue)
        assert slope == pytest.approx(abs(fit.slope))
        assert shift_correlation(column) == pytest.approx(r)
        assert shift_sensitivity(column) == pytest.approx(slope)


def test_a_line_has_its_slope():
    assert shift_correlation([0.6, 0.7, 0.8]) == pytest.approx(1)
    assert shift_correlation([0.8, 0.7, 0.6]) == pytest.approx(-1)
    assert shift_sensitivity([0.8, 0.7, 0.6]) == pytest.approx(0.1)


def test_nan_levels_keep_the_place_of_the_others():
    # Level 2 is missing: 1, 3, 4 remain, not 1, 2, 3.
    values = [0.5, np.nan, 0.9, 0.8]
    fit = stats.linregress([1, 3, 4], [0.5, 0.9, 0.8])
    assert shift_correlation(values) == pytest.approx(fit.rvalue)
    assert shift_sensitivity(values) == pytest.approx(fit.slope)
    assert shift_sensitivity([0.5, 0.9, 0.8], levels=[1, 3, 4]) == pytest.approx(fit.slope)


def test_undefined_is_nan():
    assert np.isnan(shift_correlation([0.7, 0.7, 0.7]))
    assert np.isnan(shift_correlation([0.1 + 0.2, 0.3, 0.3]))  # equal up to rounding
    assert shift_sensitivity([0.7, 0.7, 0.7]) == 0
    assert np.isnan(shift_correlation([0.7, np.nan]))
    assert np.isnan(shift_sensitivity([np.nan, np.nan]))


@pytest.mark.parametrize("function", [dad, shift_correlation, shift_sensitivity])
def test_one_level_is_refused(function):
    with pytest.raises(ValueError, match="at least two levels"):
        function([0.5])


def test_levels_of_another_length_are_refused():
    with pytest.raises(ValueError, match="levels: expected 3"):
        shift_correlation([1, 2, 3], levels=[1, 2])
