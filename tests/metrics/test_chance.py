"""Which accuracies are luck."""

import math

import pytest

from ood_lab.metrics import at_chance


@pytest.mark.parametrize(
    ("accuracy", "n", "classes", "luck"),
    [
        (0.10, 5000, 10, True),
        (0.108, 5000, 10, True),
        (0.109, 5000, 10, False),
        (0.02, 5000, 10, True),  # below chance is no better
        (4 / 6, 6, 3, False),  # of few images, two standard errors are half of the scale
        (0.5, 6, 3, True),
        (1.0, 4, 2, False),
        (1.0, 4, 1, False),
        (math.nan, 100, 10, False),
        (0.0, 0, 10, False),
    ],
)
def test_an_accuracy_that_is_luck(accuracy, n, classes, luck):
    assert at_chance(accuracy, n, classes) == luck
