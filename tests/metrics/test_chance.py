"""Which accuracies are luck."""

import math

import pytest

from ood_lab.metrics import at_chance


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
